import type { DeliveryAnswer, DeliveryState } from '@streaming-hub/contract';
import type pg from 'pg';
import { factsOf } from './facts.ts';
import { type DeliveryFacts, deliveryState, toDeliveryView } from './state.ts';
import type { Page } from './types.ts';

/** Rows looked at for one page, so that a rare state on a long lane cannot hold a connection for long. */
const scannedRows_max = 5_000;
const chunkRows = 500;

/** Where to go on: strictly below this sequence. */
export type SequenceCursor = number;
const beyondEverySequence = Number.MAX_SAFE_INTEGER;

/** Newest first over every lane the subscription ever had: each lane is one backward range scan. */
const fromLog = /* sql */ `
  select x.lane_id, x.seq, x.subscription_number, x.ce_id
  from subscription_lanes l
  cross join lateral (
    select y.lane_id, y.seq, y.subscription_number, y.ce_id from deliveries y
    where y.lane_id = l.lane_id and y.subscription_number = $1 and y.seq < $2
    order by y.seq desc limit $3) x
  where l.subscription_number = $1
  order by x.seq desc limit $3`;

/** States with a table of their own are read from there: both are small and indexed by subscription. */
const fromParked = /* sql */ `
  select lane_id, seq, subscription_number, ce_id from retries
  where subscription_number = $1 and state = 'parked' and seq < $2
  order by seq desc limit $3`;

const fromDeadLetters = /* sql */ `
  select lane_id, seq, subscription_number, ce_id from dead_letters
  where subscription_number = $1 and redriven_at is null and seq < $2
  order by seq desc limit $3`;

function sourceFor(state: DeliveryState | null): string {
  switch (state) {
    case 'parked':
      return fromParked;
    case 'dead_letter':
      return fromDeadLetters;
    case 'delivered':
    case 'cancelled':
    case 'pending':
    case null:
      return fromLog;
    default:
      return state satisfies never;
  }
}

/** The number of a subscription of this tenant (deleted ones too), or null. */
export async function subscriptionNumber(
  pool: pg.Pool,
  tenant_id: string,
  subscription_id: string,
): Promise<number | null> {
  const answer = await pool.query<{ number: number }>(
    /* sql */ `select number from subscriptions where id = $1 and tenant_id = $2`,
    [subscription_id, tenant_id],
  );
  return answer.rows[0]?.number ?? null;
}

/**
 * Deliveries of one subscription, newest first. A page may hold fewer than `limit` rows and still
 * have a next one, when the state asked for is rare.
 */
export async function listDeliveries(
  pool: pg.Pool,
  query: {
    readonly subscription_number: number;
    readonly state: DeliveryState | null;
    readonly before: SequenceCursor | null;
    readonly limit: number;
  },
): Promise<Page<DeliveryAnswer, SequenceCursor>> {
  const text = /* sql */ `
    select ${factsOf.columns} from (${sourceFor(query.state)}) d ${factsOf.joins} order by d.seq desc`;
  const rows: DeliveryAnswer[] = [];
  let before = query.before ?? beyondEverySequence;
  for (let scanned = 0; scanned < scannedRows_max; ) {
    const chunk = query.state === null ? query.limit + 1 : chunkRows;
    const answer = await pool.query<DeliveryFacts>(text, [
      query.subscription_number,
      before,
      chunk,
    ]);
    scanned += answer.rows.length;
    for (const facts of answer.rows) {
      if (rows.length === query.limit) return { rows, next: before };
      before = facts.seq;
      if (query.state === null || deliveryState(facts) === query.state) {
        rows.push(toDeliveryView(facts));
      }
    }
    if (answer.rows.length < chunk) return { rows, next: null };
  }
  return { rows, next: before };
}
