import type { DeadLetterAnswer } from '@streaming-hub/contract';
import type pg from 'pg';
import { factsOf } from './facts.ts';
import { type DeliveryFacts, toDeliveryView } from './state.ts';
import type { Page } from './types.ts';

/** Where to go on: strictly after this row in the order of the list. */
export interface DeadLetterCursor {
  /** Microseconds since the epoch. */
  readonly dead_us: number;
  readonly seq: number;
  readonly subscription_number: number;
}

interface DeadLetterRow extends DeliveryFacts {
  readonly dead_at: Date;
  readonly dead_us: number;
  readonly last_status: number | null;
  readonly last_error: string | null;
}

/** Most recent first; (dead_at, seq, subscription_number) is unique, since one subscription gets an event once. */
const list_sql = /* sql */ `
select ${factsOf.columns}, dl.last_status, dl.last_error, d.dead_us
from (
  select lane_id, seq, subscription_number, ce_id, (extract(epoch from dead_at) * 1000000)::bigint as dead_us
  from dead_letters
  where tenant_id = $1 and redriven_at is null
    and ($2::integer is null or subscription_number = $2)
    and ($3::bigint is null
      or (dead_at, seq, subscription_number) < (timestamptz 'epoch' + make_interval(secs => $3 / 1000000) + make_interval(secs => ($3 % 1000000) / 1e6), $4, $5))
  order by dead_at desc, seq desc, subscription_number desc limit $6) d
${factsOf.joins}
order by d.dead_us desc, d.seq desc, d.subscription_number desc`;

/** Dead letters of one tenant that nobody has redriven, optionally of one subscription. */
export async function listDeadLetters(
  pool: pg.Pool,
  query: {
    readonly tenant_id: string;
    readonly subscription_number: number | null;
    readonly after: DeadLetterCursor | null;
    readonly limit: number;
  },
): Promise<Page<DeadLetterAnswer, DeadLetterCursor>> {
  const { after, limit } = query;
  const answer = await pool.query<DeadLetterRow>(list_sql, [
    query.tenant_id,
    query.subscription_number,
    after?.dead_us ?? null,
    after?.seq ?? null,
    after?.subscription_number ?? null,
    limit + 1,
  ]);
  const kept = answer.rows.slice(0, limit);
  const last = kept.at(-1);
  return {
    rows: kept.map((row) => ({
      ...toDeliveryView(row),
      dead_at: row.dead_at.toISOString(),
      last_status: row.last_status,
      last_error: row.last_error,
    })),
    next:
      last && answer.rows.length > limit
        ? { dead_us: last.dead_us, seq: last.seq, subscription_number: last.subscription_number }
        : null,
  };
}
