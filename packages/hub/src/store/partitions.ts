import type pg from 'pg';
import { type Clock, type Service, systemClock, wait } from '../base/index.ts';
import { type StoreLog, silentLog } from './log.ts';

const week_ms = 604_800_000;
const weeks_ahead_default = 4;
const interval_ms_default = 6 * 3_600_000;
const retry_ms = 60_000;

/** The number of the week that holds `at_ms`: whole weeks of 604 800 s since the Unix epoch. */
export function weekNumber(at_ms: number): number {
  return Math.floor(at_ms / week_ms);
}

/**
 * Creates the partitions of the last week, the current one and `weeks_ahead` further ones where
 * they are missing. Safe from several processes at once.
 */
export async function ensurePartitions(
  pool: pg.Pool,
  weeks_ahead = weeks_ahead_default,
  now_ms = Date.now(),
): Promise<void> {
  const week = weekNumber(now_ms);
  // One statement, hence one transaction, per week: the lock that guards them is held briefly.
  for (let number = week - 1; number <= week + weeks_ahead; number++) {
    await pool.query('select ensure_week($1)', [number]);
  }
}

export interface PartitionCronOptions {
  pool: pg.Pool;
  weeks_ahead?: number;
  /** Between two runs, milliseconds. Default 6 h. */
  interval_ms?: number;
  clock?: Clock;
  log?: StoreLog;
}

/**
 * Keeps partitions ahead of the clock. `start` resolves when they exist; afterwards it looks again
 * each `interval_ms`, or a minute after a failure.
 */
export function createPartitionCron(options: PartitionCronOptions): Service {
  const { pool, clock = systemClock, log = silentLog } = options;
  let stopping = new AbortController();
  let running: Promise<void> | undefined;

  const once = () => ensurePartitions(pool, options.weeks_ahead, clock.now_ms());

  async function loop(signal: AbortSignal): Promise<void> {
    let pause_ms = options.interval_ms ?? interval_ms_default;
    for (;;) {
      await wait(pause_ms, signal);
      if (signal.aborted) return;
      try {
        await once();
        pause_ms = options.interval_ms ?? interval_ms_default;
      } catch (error) {
        log.error({ err: error }, 'could not create the partitions of the coming weeks');
        pause_ms = Math.min(retry_ms, options.interval_ms ?? interval_ms_default);
      }
    }
  }

  return {
    async start() {
      if (running) return;
      stopping = new AbortController();
      running = once().then(() => void (running = loop(stopping.signal)));
      try {
        await running;
      } catch (error) {
        running = undefined;
        throw error;
      }
    },
    async stop() {
      stopping.abort();
      await running?.catch(() => {});
      running = undefined;
    },
  };
}
