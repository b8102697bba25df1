import type pg from 'pg';

const day_ms = 86_400_000;
const days_ahead = 2;

/** Days since the Unix epoch. */
export function dayOf(at_ms: number): number {
  return Math.floor(at_ms / day_ms);
}

/** Creates the log's tables of today and the next days where they are missing. */
export async function ensureDays(pool: pg.Pool, now_ms = Date.now()): Promise<void> {
  const today = dayOf(now_ms);
  await pool.query(/* sql */ `select ensure_stream_days($1, $2)`, [today, today + days_ahead]);
}
