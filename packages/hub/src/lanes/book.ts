import type { Clock } from '../base/index.ts';
import type { Subscription } from '../subscriptions/index.ts';
import type { SubscriptionCache } from './cache.ts';
import type { Delivery, Line } from './model.ts';
import { awaitsOlder, deliveryKey, keyOf, Lane, type Queue } from './model.ts';
import { ReadAhead } from './read-ahead.ts';
import type { SlotClass } from './ring.ts';
import type { LaneRow, LogRow, RecoveredRow, RetryRow } from './statements.ts';
import { Turns } from './turns.ts';

/**
 * The book of all lanes this process owns: what is in memory, in which order it may be sent, and
 * who is next. No I/O: rows are handed in, deliveries are taken out.
 */
export class LaneBook {
  readonly lanes = new Map<number, Lane>();
  /** Deliveries in memory that have a row in `retries`, or will as soon as their outcome is durable, by key. */
  readonly tracked = new Map<string, Delivery>();
  /** Keys finished since the last poll of due retries began: its answer may be older than that. */
  readonly finishedLately = new Set<string>();
  readonly suspects = new Map<string, number>();
  readonly #cache: SubscriptionCache;
  readonly #memory: ReadAhead;
  readonly #turns: Turns;

  /** `pump` is called when a queue that had to rest may be sent again. */
  constructor(cache: SubscriptionCache, clock: Clock, pump: () => void) {
    this.#cache = cache;
    this.#memory = new ReadAhead(cache);
    this.#turns = new Turns(clock, pump);
  }

  /** Deliveries of all lanes that are read and not yet being sent. */
  get buffered(): number {
    return this.#memory.buffered;
  }

  /** Work may have arrived for this lane. */
  touch(id: number, shard: number, token: number, unclean: boolean): void {
    let lane = this.lanes.get(id);
    if (!lane) {
      lane = new Lane(id, shard, token);
      lane.unclean = unclean;
      this.lanes.set(id, lane);
    }
    lane.dirty = true;
    this.want(lane);
  }

  drop(shards: ReadonlySet<number>): void {
    for (const lane of this.lanes.values()) {
      if (!shards.has(lane.shard)) continue;
      lane.closing = true;
      lane.cut.abort();
      this.#memory.drop(lane);
      this.lanes.delete(lane.id);
    }
    for (const [key, delivery] of this.tracked) if (delivery.lane.closing) this.tracked.delete(key);
  }

  /** Lists the lane for reading if it wants to be read. */
  want(lane: Lane): void {
    this.#memory.want(lane);
  }

  /** The next lanes to read, at most `count`; empty when enough is in memory. */
  takeWanting(count: number): Lane[] {
    return this.#memory.takeWanting(count);
  }

  /** True while lanes wait to be read and there is room for what they would bring. */
  hungry(): boolean {
    return this.#memory.hungry();
  }

  /** The read did not happen: the lane wants to be read again. */
  unread(lane: Lane): void {
    this.#memory.unread(lane);
  }

  load(lane: Lane, row: LaneRow, recovered: readonly RecoveredRow[]): void {
    lane.tenant_id = row.tenant_id;
    lane.saved_through = row.settled_through;
    lane.settled_start = row.settled_through;
    lane.cursor_seq = row.settled_through;
    lane.cursor_subscription = 2 ** 31 - 1;
    lane.loaded = true;
    if (recovered.length === 0) return;
    lane.recovered = new Map();
    for (const one of recovered) {
      lane.recovered.set(
        deliveryKey(lane.id, one.seq, one.subscription_number),
        one.attempts ?? Number.POSITIVE_INFINITY,
      );
      lane.recovered_through = Math.max(lane.recovered_through, one.seq);
    }
  }

  /** Rows of the log beyond the lane's cursor, in order; `full` when there may be more. */
  admitHeads(lane: Lane, rows: readonly LogRow[], full: boolean): void {
    lane.reading = false;
    if (lane.closing) return;
    for (const row of rows) this.#admitFromLog(lane, row);
    if (rows.length > 0 || !full) lane.cursor_complete = !full;
    this.#memory.pageRead(lane, full);
    // Not before: the cursor of a lane that turns slow goes back.
    if (lane.recovered && lane.settledThrough() >= lane.recovered_through) lane.recovered = null;
    this.#memory.balance(lane);
  }

  #admitFromLog(lane: Lane, row: LogRow): void {
    lane.cursor_seq = row.seq;
    lane.cursor_subscription = row.subscription_number;
    const attempts =
      lane.recovered?.get(deliveryKey(lane.id, row.seq, row.subscription_number)) ?? 0;
    if (attempts === Number.POSITIVE_INFINITY) return;
    const entry = {
      seq: row.seq,
      subscription_number: row.subscription_number,
      delivery: null as Delivery | null,
      done: false,
    };
    const delivery = this.#delivery(
      lane,
      row,
      { attempts, attempts_before: 0, first_failed_ms: null, replay_id: null },
      entry,
    );
    entry.delivery = delivery;
    lane.window.push(entry);
    this.#memory.buffer(delivery);
    this.#suspect(delivery);
    this.#place(delivery);
  }

  /** A row of `retries`; in state `waiting` the failed head of its line. null when it is in memory already. */
  admitRetry(
    row: RetryRow,
    place: 'line' | 'aside',
    state: 'lined' | 'waiting' = 'lined',
  ): Delivery | null {
    const key = deliveryKey(row.lane_id, row.seq, row.subscription_number);
    const lane = this.lanes.get(row.lane_id);
    if (!lane || lane.closing || this.tracked.has(key) || this.finishedLately.has(key)) return null;
    const delivery = this.#delivery(lane, row, row, null, place === 'line');
    delivery.stored = true;
    delivery.state = state;
    this.track(delivery);
    this.#suspect(delivery);
    if (state === 'lined') this.#place(delivery);
    else {
      delivery.line?.insert(delivery);
      this.waits(delivery);
    }
    return delivery;
  }

  #delivery(
    lane: Lane,
    row: LogRow,
    life: {
      attempts: number;
      attempts_before: number;
      first_failed_ms: number | null;
      replay_id: string | null;
    },
    entry: Delivery['entry'],
    inLine = true,
  ): Delivery {
    const subscription = this.#cache.get(row.subscription_number);
    const queue = lane.queue(row.subscription_number);
    if (subscription) queue.configure(subscription);
    return {
      lane,
      queue,
      seq: row.seq,
      subscription_number: row.subscription_number,
      event: row.event,
      body_deferred: row.body_deferred,
      line: inLine ? this.#lineOf(lane, row) : null,
      entry,
      replay_id: life.replay_id,
      attempts: life.attempts,
      attempts_before: life.attempts_before,
      first_failed_ms: life.first_failed_ms,
      read_ahead: entry !== null,
      shelved: false,
      waits: 0,
      due_ms: 0,
      stored: false,
      crashes: 0,
      state: 'lined',
    };
  }

  #lineOf(lane: Lane, row: LogRow): Line | null {
    const ordering = this.#cache.get(row.subscription_number)?.ordering ?? 'unordered';
    switch (ordering) {
      case 'fifo':
        return lane.line('fifo');
      case 'keyed':
        return lane.line(`${row.subscription_number}:${row.event?.attributes.subject ?? ''}`);
      case 'unordered':
        return null;
      default:
        return ordering satisfies never;
    }
  }

  /** After an unclean takeover, as many deliveries as may have been in flight are under suspicion. */
  #suspect(delivery: Delivery): void {
    const { lane, queue } = delivery;
    const kind = delivery.stored ? 'retry' : 'fresh';
    const known = this.suspects.get(keyOf(delivery));
    if (known !== undefined) delivery.crashes = known;
    else if (lane.unclean && queue.suspected[kind] < queue.in_flight_max) delivery.crashes = 1;
    if (delivery.crashes > 0) queue.suspected[kind] += 1;
  }

  /** No longer under suspicion. */
  acquit(delivery: Delivery): void {
    delivery.crashes = 0;
    this.suspects.delete(keyOf(delivery));
  }

  #place(delivery: Delivery): void {
    if (!delivery.line) return this.makeReady(delivery);
    delivery.line.insert(delivery);
    if (delivery.line.deliveries[0]?.state === 'waiting') this.#memory.shelve(delivery);
    this.promote(delivery.line);
  }

  /** The failed head of a line waits: what stands behind it makes room in memory for what can be sent. */
  waits(delivery: Delivery): void {
    const { line, lane } = delivery;
    delivery.state = 'waiting';
    delivery.waits += 1;
    if (line?.sending === delivery) line.sending = null;
    for (const each of line?.deliveries ?? [delivery]) this.#memory.shelve(each);
    this.#memory.balance(lane);
    if (line) this.promote(line);
  }

  /** A change of the subscription holds from the next attempt on. */
  configure(lane: Lane, subscription: Subscription): void {
    const queue = lane.queues.get(subscription.number);
    if (!queue) return;
    queue.configure(subscription);
    this.offer(queue);
  }

  /** The failed heads of this subscription that hold their lines. */
  waiting(subscription_number: number): Delivery[] {
    const heads: Delivery[] = [];
    for (const lane of this.lanes.values()) {
      if (!lane.queues.has(subscription_number)) continue;
      for (const line of lane.lines.values()) {
        const head = line.deliveries[0];
        if (head?.state !== 'waiting' || head.subscription_number !== subscription_number) continue;
        // Waiting with its outcome still on the way to the database: its own timer will see to it.
        if (head.stored) heads.push(head);
      }
    }
    return heads;
  }

  endWait(delivery: Delivery): void {
    delivery.state = 'lined';
    if (delivery.line) this.promote(delivery.line);
    else this.makeReady(delivery);
  }

  /** Lets the head of a line go, unless one of the line is on its way or an older one is still to come back. */
  promote(line: Line): void {
    const head = line.deliveries[0];
    if (!head) return;
    if (head.state !== 'lined' || line.sending) return;
    if (awaitsOlder(head)) return;
    this.makeReady(head);
  }

  makeReady(delivery: Delivery): void {
    delivery.state = 'ready';
    this.#memory.unshelve(delivery);
    this.#turns.add(delivery);
  }

  offer(queue: Queue): void {
    this.#turns.offer(queue);
  }

  /** The next delivery in turn for this kind of slot, now `sending`; null when there is none. */
  take(kind: SlotClass): Delivery | null {
    const delivery = this.#turns.take(kind);
    if (delivery) this.#memory.unbuffer(delivery);
    return delivery;
  }

  /** The attempt is over: its place in flight is free again. */
  landed(delivery: Delivery): void {
    this.#turns.landed(delivery);
  }

  /** The delivery leaves its line (delivered, dead, or stepping aside); the next may go. */
  leaveLine(delivery: Delivery): void {
    delivery.state = 'left';
    this.#memory.unshelve(delivery);
    const { line, lane } = delivery;
    if (!line) return;
    line.remove(delivery);
    if (line.deliveries.length === 0) lane.lines.delete(line.key);
    else this.promote(line);
  }

  /**
   * From here on a row of `retries` belongs to it. Said before that row is written: the poll of due
   * retries may see the row before we hear that it is there.
   */
  track(delivery: Delivery): void {
    const key = keyOf(delivery);
    if (delivery.lane.closing || this.tracked.get(key) === delivery) return;
    this.tracked.set(key, delivery);
    delivery.lane.tracked += 1;
  }

  /** Its outcome is durable and nothing of it stays in memory. */
  forget(delivery: Delivery): void {
    if (this.leaveToTable(delivery)) this.finishedLately.add(keyOf(delivery));
  }

  /** The same, but its row in `retries` stays and may be loaded again at any time. True when it had one before. */
  leaveToTable(delivery: Delivery): boolean {
    delivery.state = 'left';
    this.#memory.unshelve(delivery);
    if (delivery.entry) {
      delivery.entry.done = true;
      delivery.entry.delivery = null;
    }
    // A later owner of the lane in this process may have one of its own under this key.
    const key = keyOf(delivery);
    if (this.tracked.get(key) !== delivery) return false;
    this.tracked.delete(key);
    delivery.lane.tracked -= 1;
    return true;
  }

  /** Lane has turned slow or well again. A slow lane keeps little in memory. */
  setSlow(lane: Lane, slow: boolean): void {
    if (lane.slow === slow || lane.closing) return;
    lane.slow = slow;
    this.#memory.setPace(lane, slow);
    for (const queue of lane.queues.values()) this.offer(queue);
    this.want(lane);
  }
}
