import { Fifo } from '../base/index.ts';
import type { StoredEvent } from '../inbox/index.ts';
import type { Subscription } from '../subscriptions/index.ts';

/**
 * The owner's memory of its lanes.
 *
 *   Lane    everything pending for one (tenant, destination): a window on the delivery log.
 *   Queue   the deliveries of one subscription on a lane that may be sent now.
 *   Line    deliveries that must go one after the other (a fifo lane, or one key of a keyed
 *           subscription). Only the head of a line is ever ready, sent or waiting.
 *
 * States of a delivery: lined → ready → sending → (gone | waiting → ready …); `parking` while the
 * database decides whether its subscription really is switched off.
 */
export interface Delivery {
  readonly lane: Lane;
  readonly queue: Queue;
  readonly seq: number;
  readonly subscription_number: number;
  /** null: the event has been dropped by retention. */
  event: StoredEvent | null;
  /** The body is read just before sending. */
  body_deferred: boolean;
  readonly line: Line | null;
  /** Its place in the lane's window; null when it was loaded from `retries`. */
  readonly entry: WindowEntry | null;
  readonly replay_id: string | null;
  /** Counted attempts in this life, and in earlier lives. */
  attempts: number;
  attempts_before: number;
  first_failed_ms: number | null;
  /** Counts as read ahead until it is sent for the first time. */
  read_ahead: boolean;
  /** It waits, or stands behind one that waits: kept without its body, and not counted as read ahead. */
  shelved: boolean;
  /** When its next attempt falls due while it waits, milliseconds since the epoch. */
  due_ms: number;
  /** Raised with each wait, so that the timer of an earlier one means nothing. */
  waits: number;
  /** True while a row in `retries` belongs to it. */
  stored: boolean;
  /** How often it may have taken a process down; 0 = not under suspicion. */
  crashes: number;
  state: 'lined' | 'ready' | 'sending' | 'waiting' | 'parking' | 'left';
}

export interface WindowEntry {
  readonly seq: number;
  readonly subscription_number: number;
  delivery: Delivery | null;
  /** Its outcome is durable. */
  done: boolean;
}

export class Line {
  readonly key: string;
  /** In order of sequence; the head is at index 0. */
  readonly deliveries: Delivery[] = [];
  /** The one that is on its way; older ones may have come back in front of it. */
  sending: Delivery | null = null;

  constructor(key: string) {
    this.key = key;
  }

  /** Keeps the order of arrival, wherever the delivery was loaded from. */
  insert(delivery: Delivery): void {
    let index = this.deliveries.length;
    while (index > 0 && (this.deliveries[index - 1] as Delivery).seq > delivery.seq) index -= 1;
    this.deliveries.splice(index, 0, delivery);
  }

  remove(delivery: Delivery): void {
    if (this.sending === delivery) this.sending = null;
    const index = this.deliveries.indexOf(delivery);
    if (index >= 0) this.deliveries.splice(index, 1);
  }
}

/** Ready deliveries of one subscription on one lane. */
export class Queue {
  readonly lane: Lane;
  readonly subscription_number: number;
  readonly fresh = new Fifo<Delivery>();
  readonly retry = new Fifo<Delivery>();
  in_flight = 0;
  in_flight_max = 1;
  /** Least time between two attempts, from the rate that the receiver allowed; 0 = none. */
  interval_ms = 0;
  /** Monotonic; no attempt before then. */
  notBefore_ms = 0;
  /** A timer will list it again once the rate allows. */
  resting = false;
  /** How many decisions about the whole subscription are awaited; nothing is sent meanwhile. */
  paused = 0;
  /** Deliveries taken for suspects since an unclean takeover: as many of each kind may have been in flight. */
  readonly suspected = { fresh: 0, retry: 0 };
  readonly listed = { fast: false, slow: false, retry: false };

  constructor(lane: Lane, subscription_number: number) {
    this.lane = lane;
    this.subscription_number = subscription_number;
  }

  configure(subscription: Pick<Subscription, 'max_in_flight' | 'allowed_rate_per_minute'>): void {
    this.in_flight_max = subscription.max_in_flight;
    const rate = subscription.allowed_rate_per_minute ?? 0;
    this.interval_ms = rate > 0 ? 60_000 / rate : 0;
  }
}

export class Lane {
  readonly id: number;
  readonly shard: number;
  /** Fencing token of the lease under which it is worked. */
  readonly token: number;
  tenant_id = '';
  loaded = false;
  /** Being handed back or lost: nothing new is sent. */
  closing = false;
  /** The log may hold rows beyond the cursor. */
  dirty = true;
  reading = false;
  listed = false;
  cursor_seq = 0;
  cursor_subscription = 0;
  /** Nothing of the cursor's own sequence is left to read: the last page was not full. */
  cursor_complete = true;
  /** Everything up to here has a durable outcome, as last saved. */
  saved_through = 0;
  settled_start = 0;
  readonly window = new Fifo<WindowEntry>();
  readonly queues = new Map<number, Queue>();
  readonly lines = new Map<string, Line>();
  /** Subscriptions whose parked deliveries come back first. */
  readonly resuming = new Set<number>();
  readonly resumingAgain = new Set<number>();
  /** What an earlier owner did beyond the saved position: attempts made, or Infinity when finished. */
  recovered: Map<string, number> | null = null;
  recovered_through = 0;
  /** Taken over from an owner that vanished: what it may have had in flight is under suspicion. */
  unclean = false;
  /** Read from the log and not yet being sent. */
  buffered = 0;
  read_size = 4;
  /** Deliveries that wait or stand behind one that waits. */
  shelved = 0;
  /** Deliveries in memory with a row in `retries`. */
  tracked = 0;
  /** Ends the attempts in flight when the lane is lost. */
  cut = new AbortController();
  in_flight = 0;
  /** Hangs or answers late: draws on the slow slots. */
  slow = false;

  constructor(id: number, shard: number, token: number) {
    this.id = id;
    this.shard = shard;
    this.token = token;
  }

  queue(subscription_number: number): Queue {
    let queue = this.queues.get(subscription_number);
    if (!queue)
      this.queues.set(subscription_number, (queue = new Queue(this, subscription_number)));
    return queue;
  }

  line(key: string): Line {
    let line = this.lines.get(key);
    if (!line) this.lines.set(key, (line = new Line(key)));
    return line;
  }

  /** Highest sequence below which nothing is unfinished. */
  settledThrough(): number {
    for (let front = this.window.peek(); front; front = this.window.peek()) {
      if (!front.done) return Math.max(this.settled_start, front.seq - 1);
      this.window.shift();
      this.settled_start = Math.max(this.settled_start, front.seq - 1);
    }
    return Math.max(this.settled_start, this.cursor_seq - (this.cursor_complete ? 0 : 1));
  }
}

export function deliveryKey(lane_id: number, seq: number, subscription_number: number): string {
  return `${lane_id}:${seq}:${subscription_number}`;
}

export function keyOf(delivery: Delivery): string {
  return deliveryKey(delivery.lane.id, delivery.seq, delivery.subscription_number);
}

/** Parked deliveries of its subscription are coming back and go before it. */
export function awaitsOlder(delivery: Delivery): boolean {
  return delivery.entry !== null && delivery.lane.resuming.has(delivery.subscription_number);
}
