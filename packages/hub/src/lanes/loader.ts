import type pg from 'pg';
import type { LaneBook } from './book.ts';
import { type SubscriptionCache, verdictOn } from './cache.ts';
import type { Delivery, Lane } from './model.ts';
import {
  type DueCursor,
  type RetryRow,
  readDueRetries,
  readHeads,
  readHeldHeads,
  readLanes,
  readRecovered,
  readResumed,
  resumedOnLanes,
} from './statements.ts';

/**
 * Brings rows from Postgres into the book: heads of lanes, failed heads that hold their line, due
 * retries, and parked deliveries that come back.
 */
const limits = {
  lanesPerRead_max: 256,
  dueRetries_max: 256,
  /** Pages looked through in one go for due retries that are not in memory yet. */
  duePages_max: 20,
  /** Due retries of one lane in memory; more of it wait in the table. */
  retriesPerLane_max: 16,
  resumedPerRead_max: 200,
};

export interface LoaderOptions {
  readonly pool: pg.Pool;
  readonly book: LaneBook;
  readonly cache: SubscriptionCache;
  /** A failed head that holds its line until then. */
  readonly hold: (delivery: Delivery, due_ms: number) => void;
  /** The cache is behind the database. */
  readonly refresh: () => Promise<void>;
  /** Takes a lane into the book if it is owned here. */
  readonly touch: (lane_id: number) => void;
  /** There may be something to send. */
  readonly pump: () => void;
  readonly onFault: (fault: Error) => void;
}

export class Loader {
  readonly #options: LoaderOptions;
  #filling = false;

  constructor(options: LoaderOptions) {
    this.#options = options;
  }

  /** Reads wanting lanes until none is left or enough is in memory. One at a time; never rejects. */
  async fill(): Promise<void> {
    if (this.#filling) return;
    this.#filling = true;
    const { book, onFault, pump } = this.#options;
    try {
      for (
        let lanes = book.takeWanting(limits.lanesPerRead_max);
        lanes.length > 0;
        lanes = book.takeWanting(limits.lanesPerRead_max)
      ) {
        await this.#read(lanes).catch((error: unknown) => {
          for (const lane of lanes) book.unread(lane);
          throw error;
        });
        pump();
      }
    } catch (error) {
      onFault(new Error('lanes could not be read; trying again', { cause: error }));
    } finally {
      this.#filling = false;
    }
  }

  async #read(lanes: readonly Lane[]): Promise<void> {
    const { pool, book, cache } = this.#options;
    await this.#load(lanes.filter((lane) => !lane.loaded));
    const readable = lanes.filter((lane) => lane.loaded && lane.resuming.size === 0);
    for (const lane of lanes) if (!readable.includes(lane)) book.unread(lane);
    if (readable.length === 0) return;
    // How much was asked for: the lane's own idea of it may change while the answer is on its way.
    const asked = readable.map((lane) => lane.read_size);
    const rows = await readHeads(pool, readable);
    await cache.ensure(rows.map((row) => row.subscription_number));
    const byLane = Map.groupBy(rows, (row) => row.lane_id);
    for (const [index, lane] of readable.entries()) {
      const own = byLane.get(lane.id) ?? [];
      book.admitHeads(lane, own, own.length >= (asked[index] ?? 0));
    }
  }

  /** First sight of lanes: their position, what was done beyond it, and the failed heads that hold a line. */
  async #load(lanes: readonly Lane[]): Promise<void> {
    if (lanes.length === 0) return;
    const { pool, book, cache, hold } = this.#options;
    const ids = lanes.map((lane) => lane.id);
    const rows = new Map((await readLanes(pool, ids)).map((row) => [row.id, row]));
    const recovered = Map.groupBy(await readRecovered(pool, ids), (row) => row.lane_id);
    const held = await readHeldHeads(pool, ids);
    const resumed = await this.#resumedOn(ids);
    await cache.ensure(held.map((row) => row.subscription_number));
    for (const lane of lanes) {
      const row = rows.get(lane.id);
      if (row && !lane.loaded) book.load(lane, row, recovered.get(lane.id) ?? []);
    }
    for (const row of held) {
      const delivery = book.admitRetry(row, 'line', 'waiting');
      if (delivery) hold(delivery, row.due_ms);
    }
    for (const row of resumed) {
      const lane = book.lanes.get(row.lane_id);
      if (lane) this.resume(lane, row.subscription_number);
    }
    for (const lane of lanes) {
      if (!lane.loaded) continue;
      const again = [...lane.resumingAgain];
      lane.resumingAgain.clear();
      for (const number of again) this.resume(lane, number);
    }
  }

  /**
   * Where an earlier owner has parked deliveries of a subscription that we still take for switched
   * on, we are behind; sending the newer ones now would overtake the parked ones.
   */
  async #resumedOn(ids: readonly number[]) {
    const { pool, cache, refresh } = this.#options;
    const found = await resumedOnLanes(pool, ids);
    const isBehind = found.some(
      (row) => row.parked && verdictOn(cache.get(row.subscription_number)) === 'send',
    );
    if (!isBehind) return found.filter((row) => !row.parked);
    await refresh();
    return (await resumedOnLanes(pool, ids)).filter((row) => !row.parked);
  }

  /** Due retries of these shards; true when there may be more. */
  async dueRetries(shards: readonly number[]): Promise<boolean> {
    const { book } = this.#options;
    const share = new Map<number, number>();
    for (const { lane, state } of book.tracked.values())
      if (state !== 'waiting') share.set(lane.id, (share.get(lane.id) ?? 0) + 1);
    book.finishedLately.clear();
    let cursor: DueCursor | null = null;
    // What is in memory already is due as well: it must not hide what comes after it.
    for (let page = 0; page < limits.duePages_max; page += 1) {
      const rows = await this.#readDue(shards, share, cursor);
      let admitted = 0;
      for (const row of rows) if (this.#admitDue(row, share)) admitted += 1;
      if (rows.length < limits.dueRetries_max) return false;
      if (admitted > 0) return true;
      cursor = rows.at(-1) ?? null;
    }
    return false;
  }

  async #readDue(
    shards: readonly number[],
    share: ReadonlyMap<number, number>,
    cursor: DueCursor | null,
  ): Promise<RetryRow[]> {
    const { pool, book, cache, touch } = this.#options;
    const full = [...share]
      .filter(([, count]) => count >= limits.retriesPerLane_max)
      .map(([lane]) => lane);
    const rows = await readDueRetries(pool, shards, full, cursor, limits.dueRetries_max);
    await cache.ensure(rows.map((row) => row.subscription_number));
    for (const row of rows) if (!book.lanes.has(row.lane_id)) touch(row.lane_id);
    const lanes = new Set(rows.map((row) => book.lanes.get(row.lane_id)));
    await this.#load([...lanes].filter((lane) => lane !== undefined && !lane.loaded) as Lane[]);
    return rows;
  }

  #admitDue(row: RetryRow, share: Map<number, number>): boolean {
    const count = share.get(row.lane_id) ?? 0;
    if (count >= limits.retriesPerLane_max) return false;
    if (this.#options.book.admitRetry(row, 'aside') === null) return false;
    share.set(row.lane_id, count + 1);
    return true;
  }

  /** Parked deliveries of a subscription that is on again come back, oldest first and before anything newer of it. */
  resume(lane: Lane, subscription_number: number): void {
    if (!lane.loaded || lane.resuming.has(subscription_number)) {
      // Not loaded: the lane may have been looked at just before. Under way: switched off and on
      // meanwhile, and there may be some again that have been passed already.
      lane.resumingAgain.add(subscription_number);
      return;
    }
    lane.resuming.add(subscription_number);
    void this.#resume(lane, subscription_number, 0);
  }

  async #resume(lane: Lane, subscription_number: number, after_seq: number): Promise<void> {
    const { pool, book, cache, pump, onFault } = this.#options;
    let reached = after_seq;
    let more = true;
    if (lane.closing) return;
    if (lane.tracked < limits.resumedPerRead_max) {
      try {
        await cache.ensure([subscription_number]);
        const rows = await readResumed(
          pool,
          lane.id,
          subscription_number,
          after_seq,
          limits.resumedPerRead_max,
        );
        for (const row of rows) book.admitRetry(row, 'line');
        reached = rows.at(-1)?.seq ?? after_seq;
        more = rows.length >= limits.resumedPerRead_max;
        pump();
      } catch (error) {
        onFault(new Error('parked deliveries could not be read; trying again', { cause: error }));
      }
    }
    if (more) setTimeout(() => void this.#resume(lane, subscription_number, reached), 100).unref();
    else if (lane.resumingAgain.delete(subscription_number))
      void this.#resume(lane, subscription_number, 0);
    else this.#resumed(lane, subscription_number);
  }

  #resumed(lane: Lane, subscription_number: number): void {
    const { book } = this.#options;
    lane.resuming.delete(subscription_number);
    for (const line of lane.lines.values()) book.promote(line);
    lane.dirty = true;
    book.want(lane);
    void this.fill();
  }
}
