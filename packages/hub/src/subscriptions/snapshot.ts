import type pg from 'pg';
import { type SubscriptionRow, subscriptionColumns, subscriptionOf } from './rows.ts';
import type { Subscription } from './types.ts';

const changes_page_max = 10_000;
const numbers_max = 10_000;

/**
 * Subscriptions written after `version`, deleted ones too, in order of their versions: a reader that
 * goes on from the highest version it got misses nothing. At most 10 000 at a time; the rest comes
 * with the next call.
 */
export async function readSubscriptionsChangedSince(
  pool: pg.Pool,
  version: number,
): Promise<Subscription[]> {
  const found = await pool.query<SubscriptionRow>({
    name: 'subscriptions-changed-since',
    text: /* sql */ `select ${subscriptionColumns} from subscriptions where version > $1 order by version limit $2`,
    values: [version, changes_page_max],
  });
  return found.rows.map(subscriptionOf);
}

/** The subscriptions with these numbers, deleted ones too, in any order. At most 10 000. */
export async function readSubscriptionsByNumber(
  pool: pg.Pool,
  numbers: readonly number[],
): Promise<Subscription[]> {
  if (numbers.length === 0) return [];
  if (numbers.length > numbers_max)
    throw new RangeError(`more than ${numbers_max} subscriptions at once`);
  const found = await pool.query<SubscriptionRow>({
    name: 'subscriptions-by-number',
    text: /* sql */ `select ${subscriptionColumns} from subscriptions where number = any($1::int[])`,
    values: [numbers],
  });
  return found.rows.map(subscriptionOf);
}
