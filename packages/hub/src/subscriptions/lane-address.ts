import type pg from 'pg';
import type { DestinationKind } from './types.ts';

export interface LaneAddress {
  readonly tenant_id: string;
  readonly kind: DestinationKind;
  readonly address: string;
}

/**
 * The lane of an address, made when there is none. The row stays locked to the end of the transaction,
 * so that nobody gives the lane another address before the subscription is on it.
 */
export async function laneFor(client: pg.ClientBase, lane: LaneAddress): Promise<number> {
  const found = await client.query<{ id: number }>(
    /* sql */ `
    insert into lanes (tenant_id, kind, address) values ($1, $2, $3)
    on conflict (tenant_id, kind, address) do update set address = excluded.address
    returning id`,
    [lane.tenant_id, lane.kind, lane.address],
  );
  const id = found.rows[0]?.id;
  if (id === undefined) throw new Error('the lane was neither found nor made');
  return id;
}

/**
 * Where a subscription goes when its address changes. Alone on its lane, and nobody at the new address:
 * the lane itself moves, with everything that waits on it. Otherwise the subscription moves to the
 * other lane, and what waits for it on the old one is still sent from there, to the new address.
 */
export async function laneAfterMove(
  client: pg.ClientBase,
  moved: { readonly id: string; readonly lane_id: number },
  target: LaneAddress,
): Promise<number> {
  // Locked first: whoever is about to join this lane is either counted below or waits for us.
  await client.query('select 1 from lanes where id = $1 for update', [moved.lane_id]);
  const readdressed = await client.query(
    /* sql */ `
    update lanes set address = $4
    where id = $1
      and not exists (select 1 from lanes where tenant_id = $2 and kind = $3 and address = $4)
      and not exists (select 1 from subscriptions s where s.lane_id = $1 and s.id <> $5 and s.deleted_at is null)`,
    [moved.lane_id, target.tenant_id, target.kind, target.address, moved.id],
  );
  return readdressed.rowCount === 1 ? moved.lane_id : laneFor(client, target);
}
