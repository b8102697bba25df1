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
 * each `interval_ms`, or a minute after a failure. Every process may run one: looking costs one
 * look-up per table and week, and whatever is missing is made under a lock, once.
 */
export function createPartitionCron(options: PartitionCronOptions): Service {
  const {
    pool,
    weeks_ahead,
    interval_ms = interval_ms_default,
    clock = systemClock,
    log = silentLog,
  } = options;
  let run: { stopping: AbortController; ready: Promise<void>; ended: Promise<void> } | undefined;

  const once = () => ensurePartitions(pool, weeks_ahead, clock.now_ms());

  async function loop(signal: AbortSignal): Promise<void> {
    let pause_ms = interval_ms;
    for (;;) {
      await wait(pause_ms, signal);
      if (signal.aborted) return;
      try {
        await once();
        pause_ms = interval_ms;
      } catch (error) {
        log.error({ err: error }, 'could not make the partitions of the coming weeks');
        pause_ms = Math.min(retry_ms, interval_ms);
      }
    }
  }

  return {
    async start() {
      if (!run) {
        const stopping = new AbortController();
        const ready = once();
        const ended = ready.then(
          () => loop(stopping.signal),
          () => void (run = undefined),
        );
        run = { stopping, ready, ended };
      }
      await run.ready;
    },
    async stop() {
      const ending = run;
      ending?.stopping.abort();
      await ending?.ended;
      if (run === ending) run = undefined;
    },
  };
}
