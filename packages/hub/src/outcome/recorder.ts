import type pg from 'pg';
import { backoff_ms, wait } from '../base/index.ts';
import { appendDelivered, recordChanges, recordedAttempts } from './statements.ts';
import type { Change, DeliveredAttempt } from './types.ts';

/**
 * Writes outcomes in batches. A plain success is one appended row; everything else (retry, dead
 * letter, parked, cancelled, success after a failure) goes through `record_changes`.
 *
 * A flush starts when `batchRows_max` outcomes wait or `window_ms` have passed, at most
 * `flights_max` at a time. A flush that fails is tried again until it succeeds: an outcome is never
 * given up, and `backlog()` tells the sender to hold back meanwhile. A failed flush may have been
 * committed all the same, its answer lost with the connection: each is one transaction, so what of
 * its attempts is found in the history has been applied and is left out of the next try.
 */
const batchRows_max = 200;
const flights_max = 2;
const window_ms = { busy: 5, quiet: 1 };
/** Below this many waiting outcomes a flush starts almost at once, above it waits for company. */
const quietRows_max = 4;

interface Entry {
  readonly delivered: DeliveredAttempt | null;
  readonly change: Change | null;
  readonly settle: (applied: boolean) => void;
}

export interface RecorderOptions {
  readonly pool: pg.Pool;
  /** Told about each failed flush. */
  readonly onFault: (fault: Error) => void;
}

export class Recorder {
  readonly #pool: pg.Pool;
  readonly #onFault: (fault: Error) => void;
  #waiting: Entry[] = [];
  #unsettled = 0;
  /** How many were recorded, and how many of them have been taken into a flush. */
  #added = 0;
  #taken = 0;
  readonly #flights = new Set<Promise<void>>();
  #timer: NodeJS.Timeout | null = null;
  readonly #abort = new AbortController();

  constructor(options: RecorderOptions) {
    this.#pool = options.pool;
    this.#onFault = options.onFault;
  }

  /** Outcomes not yet durable. */
  backlog(): number {
    return this.#unsettled;
  }

  /** A first attempt that succeeded. `settled` is called once it is durable. */
  delivered(attempt: DeliveredAttempt, settled: () => void): void {
    this.#add({ delivered: attempt, change: null, settle: settled });
  }

  /** Any other outcome. `settled(false)` means that the database refused it (see record_changes). */
  change(change: Change, settled: (applied: boolean) => void): void {
    this.#add({ delivered: null, change, settle: settled });
  }

  /** Resolves when everything recorded so far is durable, whatever is recorded meanwhile. */
  async flushed(): Promise<void> {
    const last = this.#added;
    for (this.#flush(); this.#taken < last; this.#flush()) await Promise.race(this.#flights);
    await Promise.all(this.#flights);
  }

  /** Gives up trying; what is not durable by now will be delivered again after a restart. */
  abandon(): void {
    this.#abort.abort();
  }

  #add(entry: Entry): void {
    this.#waiting.push(entry);
    this.#added += 1;
    this.#unsettled += 1;
    if (this.#waiting.length >= batchRows_max) this.#flush();
    else this.#flushSoon(this.#unsettled <= quietRows_max ? window_ms.quiet : window_ms.busy);
  }

  #flushSoon(delay_ms: number): void {
    if (this.#timer !== null) return;
    this.#timer = setTimeout(() => this.#flush(), delay_ms);
  }

  #flush(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#waiting.length === 0 || this.#flights.size >= flights_max) return;
    const entries = this.#waiting.splice(0, batchRows_max);
    this.#taken += entries.length;
    const flight = this.#write(entries).finally(() => {
      this.#flights.delete(flight);
      this.#unsettled -= entries.length;
      if (this.#waiting.length > 0) this.#flush();
    });
    this.#flights.add(flight);
  }

  async #write(entries: readonly Entry[]): Promise<void> {
    const delivered = entries.filter((entry) => entry.delivered !== null);
    const changed = entries.filter((entry) => entry.change !== null);
    await Promise.all([
      this.#untilDone(delivered, async (rest) => {
        await appendDelivered(
          this.#pool,
          rest.map((entry) => entry.delivered as DeliveredAttempt),
        );
        return new Set<number>();
      }),
      this.#untilDone(changed, (rest) =>
        recordChanges(
          this.#pool,
          rest.map((entry) => entry.change as Change),
        ),
      ),
    ]);
  }

  async #untilDone(
    entries: readonly Entry[],
    write: (entries: readonly Entry[]) => Promise<ReadonlySet<number>>,
  ): Promise<void> {
    let rest = entries;
    for (let failures = 0; rest.length > 0 && !this.#abort.signal.aborted; failures += 1) {
      try {
        if (failures > 0) rest = await this.#unrecorded(rest);
        if (rest.length === 0) return;
        const refused = await write(rest);
        for (const [index, entry] of rest.entries()) this.#settle(entry, !refused.has(index));
        return;
      } catch (error) {
        if (isRefusedContent(error)) return this.#oneByOne(rest, error, write);
        this.#onFault(new Error('outcomes could not be stored; trying again', { cause: error }));
        await wait(backoff_ms(failures, 50, 5_000), this.#abort.signal);
      }
    }
  }

  /**
   * The database refuses something in the batch for its content: the others must not wait for it.
   * A refused success stays unrecorded (it has arrived); of anything else the delivery stays open and
   * is taken up again by the next owner of its lane.
   */
  async #oneByOne(
    entries: readonly Entry[],
    cause: unknown,
    write: (entries: readonly Entry[]) => Promise<ReadonlySet<number>>,
  ): Promise<void> {
    const [only, another] = entries;
    if (only && !another) {
      this.#onFault(new Error('the database refuses to store an outcome', { cause }));
      return this.#settle(only, only.delivered !== null);
    }
    for (const entry of entries) await this.#untilDone([entry], write);
  }

  #settle(entry: Entry, applied: boolean): void {
    try {
      entry.settle(applied);
    } catch (error) {
      this.#onFault(new Error('what follows from a stored outcome failed', { cause: error }));
    }
  }

  /** Settles what an earlier try has stored although it failed; answers the others. */
  async #unrecorded(entries: readonly Entry[]): Promise<readonly Entry[]> {
    const keyed = entries.flatMap((entry) => {
      const outcome = entry.delivered ?? entry.change;
      return outcome?.attempt ? [{ ...outcome, attempt: outcome.attempt }] : [];
    });
    const found = await recordedAttempts(this.#pool, keyed);
    return entries.filter((entry) => {
      const id = (entry.delivered ?? entry.change)?.attempt?.delivery_attempt_id;
      if (id === undefined || !found.has(id)) return true;
      this.#settle(entry, true);
      return false;
    });
  }
}

/** Data exception, violated constraint (a missing partition is one): trying again cannot help. */
function isRefusedContent(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return code.length === 5 && (code.startsWith('22') || code.startsWith('23'));
}
