import type { Clock, Fifo } from '../base/index.ts';
import { awaitsOlder, type Delivery, type Queue } from './model.ts';
import { FairRing, type SlotClass } from './ring.ts';

/** Whose turn it is: queues with something ready are listed, and taken one delivery at a time. */
export class Turns {
  readonly #rings: Readonly<Record<SlotClass, FairRing>> = {
    fast: new FairRing('fast'),
    slow: new FairRing('slow'),
    retry: new FairRing('retry'),
  };
  readonly #clock: Clock;
  readonly #pump: () => void;

  /** `pump` is called when a queue that had to rest may be sent again. */
  constructor(clock: Clock, pump: () => void) {
    this.#clock = clock;
    this.#pump = pump;
  }

  /** One more that may be sent. */
  add(delivery: Delivery): void {
    (delivery.stored ? delivery.queue.retry : delivery.queue.fresh).push(delivery);
    this.offer(delivery.queue);
  }

  /** Lists the queue where it has something that may be sent now. */
  offer(queue: Queue): void {
    if (queue.paused > 0 || queue.lane.closing || queue.in_flight >= queue.in_flight_max) return;
    if (queue.interval_ms > 0 && this.#rests(queue)) return;
    if (queue.fresh.length > 0) this.#rings[queue.lane.slow ? 'slow' : 'fast'].offer(queue);
    if (queue.retry.length > 0) this.#rings[queue.lane.slow ? 'slow' : 'retry'].offer(queue);
  }

  /** True while the rate that the receiver allowed says wait; a timer lists the queue again. */
  #rests(queue: Queue): boolean {
    const wait_ms = queue.notBefore_ms - this.#clock.monotonic_ms();
    if (wait_ms <= 0) return false;
    if (queue.resting) return true;
    queue.resting = true;
    setTimeout(() => {
      queue.resting = false;
      this.offer(queue);
      this.#pump();
    }, wait_ms).unref();
    return true;
  }

  /** The next delivery in turn for this kind of slot, now `sending`; null when there is none. */
  take(kind: SlotClass): Delivery | null {
    for (let queue = this.#rings[kind].take(); queue; queue = this.#rings[kind].take()) {
      if (queue.paused > 0 || queue.lane.closing || queue.in_flight >= queue.in_flight_max)
        continue;
      if (queue.interval_ms > 0 && this.#rests(queue)) continue;
      if (queue.lane.slow !== (kind === 'slow')) {
        this.offer(queue);
        continue;
      }
      const delivery =
        (kind === 'fast' ? null : this.#next(queue.retry)) ??
        (kind === 'retry' ? null : this.#next(queue.fresh));
      if (!delivery) continue;
      delivery.state = 'sending';
      if (delivery.line) delivery.line.sending = delivery;
      if (queue.interval_ms > 0)
        queue.notBefore_ms = this.#clock.monotonic_ms() + queue.interval_ms;
      queue.in_flight += 1;
      queue.lane.in_flight += 1;
      this.offer(queue);
      return delivery;
    }
    return null;
  }

  /** Skips what has been evicted, or has to let older deliveries of its line go first. */
  #next(ready: Fifo<Delivery>): Delivery | null {
    for (let delivery = ready.shift(); delivery; delivery = ready.shift()) {
      if (delivery.state !== 'ready') continue;
      const { line } = delivery;
      if (line && (line.sending || line.deliveries[0] !== delivery || awaitsOlder(delivery))) {
        delivery.state = 'lined';
        continue;
      }
      return delivery;
    }
    return null;
  }

  /** The attempt is over: its place in flight is free again. */
  landed(delivery: Delivery): void {
    delivery.queue.in_flight -= 1;
    delivery.lane.in_flight -= 1;
    this.offer(delivery.queue);
  }
}
