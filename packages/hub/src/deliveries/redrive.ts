import type { DeliveryAnswer, DeliveryState } from '@streaming-hub/contract';
import type pg from 'pg';
import { uuidv7 } from 'uuidv7';
import { withTransaction } from '../store/index.ts';
import { readFacts } from './facts.ts';
import { deliveryState, toDeliveryView } from './state.ts';
import type { DeliveryKey } from './types.ts';

export type Redriven =
  | { readonly kind: 'redriven'; readonly replay_id: string; readonly delivery: DeliveryAnswer }
  | { readonly kind: 'not_found' }
  | { readonly kind: 'not_dead'; readonly state: DeliveryState }
  | { readonly kind: 'subscription_deleted' }
  | { readonly kind: 'event_expired' };

/** Whoever takes the dead letter first redrives it; a second request finds it redriven. */
const take_sql = /* sql */ `
update dead_letters set redriven_at = now()
where lane_id = $1 and seq = $2 and subscription_number = $3 and tenant_id = $4 and redriven_at is null
returning ce_id, attempts`;

const usable_sql = /* sql */ `
select s.deleted_at is null as subscribed,
  exists (select 1 from event_inbox i where i.tenant_id = $2 and i.ce_id = $3) as event_kept
from subscriptions s where s.number = $1`;

/** A new life of the delivery: a fresh schedule, due now; earlier tries stay counted on the wire. */
const schedule_sql = /* sql */ `
insert into retries (lane_id, seq, subscription_number, tenant_id, ce_id, shard, state, attempts, attempts_before,
  due_at, first_failed_at, reason, replay_id)
select $1, $2, $3, $4, $5, l.shard, 'scheduled', 0, $6, now(), null, 'redrive', $7 from lanes l where l.id = $1
on conflict (lane_id, seq, subscription_number) do update
  set state = excluded.state, attempts = excluded.attempts, attempts_before = excluded.attempts_before,
      due_at = excluded.due_at, first_failed_at = null, reason = excluded.reason, replay_id = excluded.replay_id`;

/** Makes one dead letter due again at once, in one transaction. */
export async function redrive(
  pool: pg.Pool,
  tenant_id: string,
  key: DeliveryKey,
): Promise<Redriven> {
  const identity = [key.lane_id, key.seq, key.subscription_number, tenant_id];
  const replay_id = uuidv7();
  return withTransaction(pool, async (client): Promise<Redriven> => {
    const taken = await client.query<{ ce_id: string; attempts: number }>(take_sql, identity);
    const dead = taken.rows[0];
    if (!dead) {
      const facts = await readFacts(client, tenant_id, key);
      return facts ? { kind: 'not_dead', state: deliveryState(facts) } : { kind: 'not_found' };
    }
    const usable = await client.query<{ subscribed: boolean; event_kept: boolean }>(usable_sql, [
      key.subscription_number,
      tenant_id,
      dead.ce_id,
    ]);
    const refusal = refusalOf(usable.rows[0]);
    if (refusal) throw new RedriveRefused(refusal);
    await client.query(schedule_sql, [...identity, dead.ce_id, dead.attempts, replay_id]);
    await client.query(`select pg_notify('hub_retries', '')`);
    const facts = await readFacts(client, tenant_id, key);
    return facts
      ? { kind: 'redriven', replay_id, delivery: toDeliveryView(facts) }
      : { kind: 'not_found' };
  }).catch((error: unknown) => {
    if (error instanceof RedriveRefused) return error.refusal;
    throw error;
  });
}

type Refusal = Extract<Redriven, { kind: 'subscription_deleted' | 'event_expired' }>;

/** Thrown to roll the transaction back; never leaves this file. */
class RedriveRefused extends Error {
  readonly refusal: Refusal;
  constructor(refusal: Refusal) {
    super(`redrive refused: ${refusal.kind}`);
    this.refusal = refusal;
  }
}

function refusalOf(
  found: { subscribed: boolean; event_kept: boolean } | undefined,
): Refusal | null {
  if (!found?.subscribed) return { kind: 'subscription_deleted' };
  return found.event_kept ? null : { kind: 'event_expired' };
}
