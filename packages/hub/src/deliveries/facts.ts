import type pg from 'pg';
import type { DeliveryFacts } from './state.ts';
import type { DeliveryKey } from './types.ts';

/** Attempts never start before their event's sequence, but two clocks may differ by this much. */
const clockMargin_us = 3_600_000_000;

/**
 * Columns and joins that turn rows of `d` (lane_id, seq, subscription_number, ce_id) into facts.
 * Each join probes one index; the attempts of one delivery are few, and the bound on `started_at`
 * leaves out partitions older than the event.
 */
const columns = /* sql */ `
  d.lane_id, d.seq, d.subscription_number, d.ce_id, s.id as subscription_id,
  coalesce(a.attempts, 0)::int as attempts, a.delivered_at, a.cancelled_at, a.cancel_reason,
  dl.dead_at, dl.reason as dead_reason, dl.redriven_at,
  r.state as retry_state, r.reason as retry_reason, r.due_at`;

const joins = /* sql */ `
  join subscriptions s on s.number = d.subscription_number
  left join retries r
    on r.lane_id = d.lane_id and r.seq = d.seq and r.subscription_number = d.subscription_number
  left join lateral (
    select x.dead_at, x.reason, x.redriven_at, x.last_status, x.last_error from dead_letters x
    where x.lane_id = d.lane_id and x.seq = d.seq and x.subscription_number = d.subscription_number
    limit 1) dl on true
  left join lateral (
    select count(*) filter (where t.outcome <> 'cancelled') as attempts,
      min(t.started_at + make_interval(secs => t.duration_us / 1e6)) filter (where t.outcome = 'delivered') as delivered_at,
      max(t.started_at) filter (where t.outcome = 'cancelled' and t.final) as cancelled_at,
      max(t.error_code) filter (where t.outcome = 'cancelled' and t.final) as cancel_reason
    from delivery_attempts t
    where t.lane_id = d.lane_id and t.seq = d.seq and t.subscription_number = d.subscription_number
      and t.started_at >= to_timestamp((d.seq - ${clockMargin_us}) / 1e6)) a on true`;

export const factsOf = { columns, joins } as const;

const one_sql = /* sql */ `
select ${columns} from deliveries d ${joins}
where d.lane_id = $1 and d.seq = $2 and d.subscription_number = $3 and d.tenant_id = $4`;

/** The delivery with this identity, or null when there is none or it belongs to another tenant. */
export async function readFacts(
  db: pg.Pool | pg.PoolClient,
  tenant_id: string,
  key: DeliveryKey,
): Promise<DeliveryFacts | null> {
  const answer = await db.query<DeliveryFacts>(one_sql, [
    key.lane_id,
    key.seq,
    key.subscription_number,
    tenant_id,
  ]);
  return answer.rows[0] ?? null;
}

const ofEvent_sql = /* sql */ `
select ${columns} from lanes l
join deliveries d on d.lane_id = l.id and d.seq = $2
${joins}
where l.tenant_id = $1 and d.tenant_id = $1
order by d.subscription_number limit $3`;

/** Every delivery of one stored event, one probe per lane of the tenant. */
export async function readFactsOfEvent(
  pool: pg.Pool,
  tenant_id: string,
  seq: number,
  limit: number,
): Promise<readonly DeliveryFacts[]> {
  const answer = await pool.query<DeliveryFacts>(ofEvent_sql, [tenant_id, seq, limit]);
  return answer.rows;
}
