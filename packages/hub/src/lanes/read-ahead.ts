import { Fifo } from '../base/index.ts';
import type { SubscriptionCache } from './cache.ts';
import type { Delivery, Lane } from './model.ts';

/**
 * How much of the lanes is in memory, and which of them are read next. What can be sent soon counts
 * as buffered; what stands behind a failure is shelved: kept without its body, in numbers of its own.
 */
const limits = {
  /** Deliveries read ahead for all lanes together; reading stops beyond it. */
  buffered_max: 1_500,
  /** Up to here lanes with nothing in memory still get a first page: others' backlog does not hide their work. */
  buffered_ceiling: 6_000,
  /** Deliveries read ahead for one lane: it starts small and doubles while the lane keeps up. */
  read_size_least: 4,
  read_size_most: 128,
  /** Deliveries of one lane that wait or stand behind one that waits; beyond it the lane is not read on. */
  shelvedPerLane_max: 256,
  /** The same for all lanes; beyond it only lanes with few are read on. */
  shelved_max: 50_000,
};

export class ReadAhead {
  #buffered = 0;
  #shelved = 0;
  readonly #cache: SubscriptionCache;
  readonly #wanting = new Fifo<Lane>();
  /** Those of them that had nothing in memory when they were listed. */
  readonly #wantingFirst = new Fifo<Lane>();

  constructor(cache: SubscriptionCache) {
    this.#cache = cache;
  }

  /** Deliveries of all lanes that are read and not yet being sent. */
  get buffered(): number {
    return this.#buffered;
  }

  /** Lists the lane for reading if it wants to be read. */
  want(lane: Lane): void {
    if (lane.listed || lane.reading || lane.closing || !lane.dirty) return;
    if (lane.loaded && (lane.resuming.size > 0 || lane.buffered * 2 > lane.read_size)) return;
    if (this.#blocked(lane)) return;
    lane.listed = true;
    (lane.buffered === 0 ? this.#wantingFirst : this.#wanting).push(lane);
  }

  /** What lies beyond the cursor could not be sent anyway, or too much stands behind failures already. */
  #blocked(lane: Lane): boolean {
    if (lane.shelved >= limits.shelvedPerLane_max) return true;
    if (this.#shelved >= limits.shelved_max && lane.shelved > limits.read_size_least) return true;
    return this.#standsStill(lane);
  }

  /** Nothing of the lane can be sent before its failed head. */
  #standsStill(lane: Lane): boolean {
    if (lane.lines.get('fifo')?.deliveries[0]?.state !== 'waiting') return false;
    return [...lane.queues.keys()].every((number) => this.#cache.get(number)?.ordering === 'fifo');
  }

  /** The next lanes to read, at most `count`; empty when enough is in memory. */
  takeWanting(count: number): Lane[] {
    const taken: Lane[] = [];
    let ahead = this.#buffered;
    while (taken.length < count) {
      const scarce = ahead >= limits.buffered_max;
      if (scarce && ahead >= limits.buffered_ceiling) break;
      const lane = this.#wantingFirst.shift() ?? (scarce ? undefined : this.#wanting.shift());
      if (!lane) break;
      lane.listed = false;
      if (lane.closing) continue;
      if (scarce) lane.read_size = Math.min(lane.read_size, limits.read_size_least);
      lane.reading = true;
      lane.dirty = false;
      taken.push(lane);
      ahead += lane.read_size;
    }
    return taken;
  }

  /** True while lanes wait to be read and there is room for what they would bring. */
  hungry(): boolean {
    if (this.#wantingFirst.length > 0) return this.#buffered < limits.buffered_ceiling;
    return this.#wanting.length > 0 && this.#buffered * 2 < limits.buffered_max;
  }

  /** The read did not happen: the lane wants to be read again. */
  unread(lane: Lane): void {
    lane.reading = false;
    lane.dirty = true;
    this.want(lane);
  }

  /** One more was read from the log. */
  buffer(delivery: Delivery): void {
    delivery.lane.buffered += 1;
    this.#buffered += 1;
  }

  /** It is being sent, or makes room for others. */
  unbuffer(delivery: Delivery): void {
    if (!delivery.read_ahead) return;
    delivery.read_ahead = false;
    delivery.lane.buffered -= 1;
    this.#buffered -= 1;
    this.want(delivery.lane);
  }

  /** It waits, or stands behind one that does. */
  shelve(delivery: Delivery): void {
    this.unbuffer(delivery);
    if (delivery.shelved || (delivery.state !== 'lined' && delivery.state !== 'waiting')) return;
    delivery.shelved = true;
    delivery.lane.shelved += 1;
    this.#shelved += 1;
    if (!delivery.event?.body) return;
    delivery.event = { ...delivery.event, body: null };
    delivery.body_deferred = true;
  }

  /** It may go, or is no longer in memory. */
  unshelve(delivery: Delivery): void {
    if (!delivery.shelved) return;
    delivery.shelved = false;
    if (delivery.lane.closing) return;
    delivery.lane.shelved -= 1;
    this.#shelved -= 1;
    this.want(delivery.lane);
  }

  /** A page has been admitted; `full` when there may be more. */
  pageRead(lane: Lane, full: boolean): void {
    if (!full) return;
    lane.dirty = true;
    if (!lane.slow) lane.read_size = Math.min(lane.read_size * 2, limits.read_size_most);
  }

  /**
   * Gives back what could not be sent anyway, or reads on. What is shelved beside something that can
   * be sent stays: given back it would make room for being read again, over and over.
   */
  balance(lane: Lane): void {
    if (this.#standsStill(lane)) this.#evict(lane, 1);
    this.want(lane);
  }

  /** A slow lane keeps little in memory. */
  setPace(lane: Lane, slow: boolean): void {
    lane.read_size = slow ? 2 : limits.read_size_least;
    if (slow) this.#evict(lane, 2);
  }

  /** Nothing of the lane is in memory any more. */
  drop(lane: Lane): void {
    this.#buffered -= lane.buffered;
    this.#shelved -= lane.shelved;
    lane.buffered = 0;
    lane.shelved = 0;
  }

  /** Gives back what was read ahead: the cursor returns to the last delivery that stays. */
  #evict(lane: Lane, keep: number): void {
    // A read under way goes on from the cursor as it was: moving it back now would leave a gap.
    while (!lane.reading && lane.window.length > keep) {
      const entry = lane.window.last();
      const delivery = entry?.delivery;
      if (
        !delivery ||
        delivery.stored ||
        (delivery.state !== 'lined' && delivery.state !== 'ready')
      )
        break;
      delivery.state = 'left';
      delivery.line?.remove(delivery);
      if (delivery.line?.deliveries.length === 0) lane.lines.delete(delivery.line.key);
      lane.window.pop();
      lane.dirty = true;
      this.unbuffer(delivery);
      this.unshelve(delivery);
      const last = lane.window.last();
      if (!last) break;
      lane.cursor_seq = last.seq;
      lane.cursor_subscription = last.subscription_number;
      lane.cursor_complete = false;
      lane.dirty = true;
    }
  }
}
