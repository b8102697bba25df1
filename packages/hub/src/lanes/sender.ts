import type pg from 'pg';
import type { AttemptResult, Sink } from '../attempt/index.ts';
import type { Clock, Random } from '../base/index.ts';
import type { AttemptRecord, Change, Recorder } from '../outcome/index.ts';
import { decide } from '../outcome/index.ts';
import type { DestinationKind, Subscription } from '../subscriptions/index.ts';
import type { LaneBook } from './book.ts';
import { type SubscriptionCache, verdictOn } from './cache.ts';
import type { Delivery, Lane } from './model.ts';
import { attemptRecord, changeOf, endings, identity, last, usableSchedule } from './records.ts';
import type { SlotClass } from './ring.ts';
import { Slots } from './slots.ts';
import { readBody } from './statements.ts';
import { Suspects } from './suspects.ts';

/** One attempt, told to whoever listens: metrics and the log line. */
export interface AttemptReport {
  readonly subscription: Subscription;
  readonly delivery: Delivery;
  readonly attempt: AttemptRecord;
  readonly decision: string;
  readonly next_attempt_ms: number | null;
  /** Arrival to first byte sent, for first attempts. */
  readonly event_to_attempt_ms: number | null;
}

export interface SenderOptions {
  readonly pool: pg.Pool;
  readonly book: LaneBook;
  readonly cache: SubscriptionCache;
  readonly recorder: Recorder;
  readonly sinks: Readonly<Record<DestinationKind, Sink>>;
  /** Live signing secrets, newest first. Throws when they cannot be opened. */
  readonly secrets: (subscription: Subscription) => Promise<readonly string[]> | readonly string[];
  readonly schedule_seconds: readonly number[];
  /** Attempts in flight. */
  readonly slots: number;
  readonly poison_threshold: number;
  readonly clock: Clock;
  readonly random: Random;
  readonly newId: () => string;
  /** May anything be sent now (leases in hand, not draining)? */
  readonly may: () => boolean;
  /** Are the leases in hand? When they are not, attempts in flight are cut off: somebody else may begin. */
  readonly leased: () => boolean;
  readonly onAttempt: (report: AttemptReport) => void;
  /** A delivery ended: delivered | dead_letter | cancelled | parked. */
  readonly onEnd: (outcome: string) => void;
  /** A retry falls due then. */
  readonly onRetry: (due_ms: number) => void;
  /** The cache is behind the database. */
  readonly refresh: () => Promise<void>;
  readonly fill: () => void;
  readonly onFault: (fault: Error) => void;
}

/** Outcomes that may wait to be stored before sending holds back. */
const unrecorded_max = 4_000;
/** An attempt older than this moves to the slow slots, and its lane with it. */
const slowAfter_ms = 1_000;

interface Flight {
  readonly delivery: Delivery;
  readonly started_ms: number;
  slot: SlotClass;
}

/** Takes deliveries in turn, makes exactly one attempt for each, and settles what follows. */
export class Sender {
  readonly #options: SenderOptions;
  readonly #slots: Slots;
  readonly #suspects: Suspects;
  readonly #flights = new Set<Flight>();
  #landed: (() => void)[] = [];
  #abandoned = false;

  constructor(options: SenderOptions) {
    this.#options = options;
    this.#slots = new Slots(options.slots);
    this.#suspects = new Suspects(options.pool, options.poison_threshold);
  }

  get in_flight(): number {
    return this.#flights.size;
  }

  /** True while no slot is left for healthy work. */
  saturated(): boolean {
    return !this.#slots.free('fast');
  }

  /** Starts as many attempts as slots and turns allow. */
  pump(): void {
    const { book, recorder, may } = this.#options;
    if (!may()) return;
    for (const kind of ['fast', 'retry', 'slow'] as const) {
      while (this.#slots.free(kind) && recorder.backlog() < unrecorded_max) {
        const delivery = book.take(kind);
        if (!delivery) break;
        this.#begin(delivery, kind);
      }
    }
    if (book.hungry()) this.#options.fill();
  }

  /** Moves attempts that hang to the slow slots. Called ten times a second. */
  sortOutSlow(): void {
    const now_ms = this.#options.clock.monotonic_ms();
    const leased = this.#options.leased();
    for (const flight of this.#flights) {
      if (!leased) cutOff(flight.delivery.lane);
      if (now_ms - flight.started_ms < slowAfter_ms) continue;
      if (flight.slot !== 'slow') {
        this.#slots.move(flight.slot, 'slow');
        flight.slot = 'slow';
      }
      this.#options.book.setSlow(flight.delivery.lane, true);
    }
    this.pump();
  }

  /** Those of these shards that have attempts in flight. */
  busy(shards: Iterable<number>): ReadonlySet<number> {
    const asked = new Set(shards);
    const inFlight = [...this.#flights].map((flight) => flight.delivery.lane.shard);
    return new Set(inFlight.filter((shard) => asked.has(shard)));
  }

  /** Resolves when no attempt is in flight on these shards. */
  async quiet(shards: ReadonlySet<number>): Promise<void> {
    while (this.busy(shards).size > 0 && !this.#abandoned)
      await new Promise<void>((resolve) => this.#landed.push(resolve));
  }

  /** Cuts off the attempts in flight: they end as the hub's own failures. */
  abort(): void {
    for (const flight of this.#flights) cutOff(flight.delivery.lane);
  }

  /** Waits no longer for attempts that did not even end when cut off. */
  abandon(): void {
    this.#abandoned = true;
    for (const resolve of this.#landed.splice(0)) resolve();
  }

  #begin(delivery: Delivery, slot: SlotClass): void {
    const { cache } = this.#options;
    const subscription = cache.get(delivery.subscription_number);
    const verdict = verdictOn(subscription);
    if (verdict === 'park') return this.#park(delivery);
    if (!subscription || verdict === 'cancel')
      return this.#end(delivery, 'cancel', 'subscription_deleted', 'cancelled');
    if (!delivery.event) return this.#end(delivery, 'cancel', 'event_expired', 'cancelled');
    if (this.#suspects.condemns(delivery)) return this.#end(delivery, 'dead', 'poison', 'poison');
    const flight: Flight = { delivery, slot, started_ms: this.#options.clock.monotonic_ms() };
    this.#slots.take(slot);
    this.#flights.add(flight);
    void this.#attempt(flight, subscription);
  }

  async #attempt(flight: Flight, subscription: Subscription): Promise<void> {
    const { delivery } = flight;
    const { clock, newId } = this.#options;
    const id = newId();
    let started_ms = clock.now_ms();
    const result = await this.#suspects
      .under(delivery, async () => {
        const event = await this.#eventOf(delivery);
        const secrets = await this.#options.secrets(subscription);
        if (!this.#stillMay(delivery, subscription)) return null;
        started_ms = clock.now_ms();
        return this.#options.sinks[subscription.kind].attempt(
          {
            subscription,
            event,
            secrets,
            attempt: delivery.attempts_before + delivery.attempts + 1,
            delivery_attempt_id: id,
            replay_id: delivery.replay_id,
          },
          delivery.lane.cut.signal,
        );
      })
      .catch((error: unknown) => this.#ownFailure(error));
    this.#flights.delete(flight);
    this.#slots.give(flight.slot);
    this.#options.book.landed(delivery);
    if (result === null) {
      this.#putBack(delivery);
      for (const resolve of this.#landed.splice(0)) resolve();
      return this.pump();
    }
    if (
      result.timings.total_ms < slowAfter_ms &&
      delivery.lane.slow &&
      delivery.lane.in_flight === 0
    ) {
      this.#options.book.setSlow(delivery.lane, false);
    }
    this.#settle(delivery, subscription, result, id, started_ms);
    for (const resolve of this.#landed.splice(0)) resolve();
    this.pump();
  }

  /** Reading the body, opening secrets and waiting among suspects take time: asked again before anything goes out. */
  #stillMay(delivery: Delivery, subscription: Subscription): boolean {
    const current = this.#options.cache.get(subscription.number);
    if (delivery.lane.closing || !this.#options.may()) return false;
    return current?.version === subscription.version;
  }

  /** Nothing was sent: it takes its turn again, under whatever holds by then. */
  #putBack(delivery: Delivery): void {
    this.#suspects.recorded(delivery);
    if (delivery.lane.closing) return;
    const { book } = this.#options;
    if (delivery.line) delivery.line.sending = null;
    book.endWait(delivery);
  }

  async #eventOf(delivery: Delivery) {
    const event = delivery.event;
    if (!event) throw new Error('the event is gone');
    return delivery.body_deferred
      ? { ...event, body: await readBody(this.#options.pool, event) }
      : event;
  }

  #ownFailure(error: unknown): AttemptResult {
    this.#options.onFault(new Error('an attempt failed inside the hub', { cause: error }));
    return {
      outcome: 'failed',
      blame: 'hub',
      status: null,
      error: {
        code: 'hub_error',
        message: 'The hub could not make this attempt; it will try again.',
      },
      response_excerpt: null,
      retry_after_seconds: null,
      timings: { dns_ms: null, connect_ms: null, tls_ms: null, first_byte_ms: null, total_ms: 0 },
    };
  }

  #settle(
    delivery: Delivery,
    subscription: Subscription,
    result: AttemptResult,
    id: string,
    started_ms: number,
  ): void {
    const { clock, random, recorder, book } = this.#options;
    const attempt = attemptRecord(delivery, result, id, started_ms);
    const now_ms = clock.now_ms();
    const schedule_seconds =
      usableSchedule(subscription.retry_schedule_seconds) ?? this.#options.schedule_seconds;
    const decision = decide({
      result,
      attempts: delivery.attempts,
      schedule_seconds,
      now_ms,
      random,
    });
    this.#tell({
      subscription,
      delivery,
      attempt,
      decision: decision.kind,
      next_attempt_ms: decision.kind === 'retry' ? decision.due_ms : null,
      event_to_attempt_ms: attempt.attempt === 1 ? started_ms - delivery.seq / 1000 : null,
    });
    switch (decision.kind) {
      case 'delivered': {
        book.leaveLine(delivery);
        this.#options.onEnd('delivered');
        const done = () => book.forget(delivery);
        if (!delivery.stored && delivery.crashes === 0)
          recorder.delivered({ ...identity(delivery), attempt }, done);
        else this.#change(delivery, changeOf(delivery, 'delivered', { attempt }), done);
        return;
      }
      case 'retry':
        return this.#retry(delivery, subscription, decision, attempt, result);
      case 'dead_letter': {
        book.leaveLine(delivery);
        this.#options.onEnd('dead_letter');
        if (decision.reason === 'gone') delivery.queue.paused += 1;
        const change = changeOf(delivery, 'dead', {
          attempt,
          reason: decision.reason,
          attempts: delivery.attempts + 1,
          ...last(result),
        });
        this.#change(delivery, change, (applied) => {
          if (applied) book.forget(delivery);
          if (decision.reason === 'gone') void this.#unpause(delivery);
        });
        return;
      }
      default:
        return decision satisfies never;
    }
  }

  /** Whoever listens must not cost the outcome. */
  #tell(report: AttemptReport): void {
    try {
      this.#options.onAttempt(report);
    } catch (error) {
      this.#options.onFault(new Error('an attempt could not be reported', { cause: error }));
    }
  }

  #change(delivery: Delivery, change: Change, settled: (applied: boolean) => void): void {
    const { book, recorder } = this.#options;
    recorder.change(change, (applied) => {
      this.#suspects.recorded(delivery);
      if (change.suspect) book.acquit(delivery);
      settled(applied);
    });
  }

  /** The whole subscription has ended: nothing of it goes out before the cache knows. */
  async #unpause(delivery: Delivery): Promise<void> {
    await this.#options.refresh().catch(this.#options.onFault);
    delivery.queue.paused -= 1;
    this.#options.book.offer(delivery.queue);
    this.pump();
  }

  #retry(
    delivery: Delivery,
    subscription: Subscription,
    decision: { due_ms: number; attempts: number; reason: string },
    attempt: AttemptRecord,
    result: AttemptResult,
  ): void {
    const { book, clock } = this.#options;
    // A failure of the hub's own neither starts the hold nor ends it: our outage does not reorder.
    const own = result.blame === 'hub';
    const first_failed_ms = delivery.first_failed_ms ?? (own ? null : clock.now_ms());
    const hold_ms =
      subscription.hold_seconds === null
        ? Number.POSITIVE_INFINITY
        : subscription.hold_seconds * 1000;
    const isOver = first_failed_ms !== null && clock.now_ms() >= first_failed_ms + hold_ms;
    const holds =
      delivery.line !== null &&
      delivery.line.deliveries.includes(delivery) &&
      isOrdered(this.#options.cache.get(subscription.number) ?? subscription, delivery) &&
      !isOver;
    delivery.attempts = decision.attempts;
    delivery.first_failed_ms = first_failed_ms;
    if (holds) book.waits(delivery);
    else book.leaveLine(delivery);
    book.track(delivery);
    const change = changeOf(delivery, 'retry', {
      attempt,
      due_ms: decision.due_ms,
      first_failed_ms,
      reason: decision.reason,
      // Where the hub failed, the attempt may not have been made: that clears nobody.
      suspect: delivery.crashes > 0 && !own,
      ...last(result),
    });
    this.#change(delivery, change, (applied) => {
      if (!applied) return;
      this.#options.onRetry(decision.due_ms);
      if (!holds) return book.forget(delivery);
      delivery.stored = true;
      if (delivery.entry) delivery.entry.done = true;
      this.hold(delivery, decision.due_ms);
    });
  }

  /**
   * A failed head holds its line: until its next attempt is due, or until the hold ends and it
   * steps aside to its schedule, whichever comes first.
   */
  hold(delivery: Delivery, due_ms: number): void {
    const { clock, cache, book } = this.#options;
    const subscription = cache.get(delivery.subscription_number);
    const hold_seconds = subscription ? subscription.hold_seconds : 0;
    delivery.due_ms = due_ms;
    const heldUntil_ms = !isOrdered(subscription, delivery)
      ? 0
      : hold_seconds === null || delivery.first_failed_ms === null
        ? Number.POSITIVE_INFINITY
        : delivery.first_failed_ms + hold_seconds * 1000;
    const attemptNext = due_ms <= heldUntil_ms;
    const delay_ms = Math.max(0, Math.min(due_ms, heldUntil_ms) - clock.now_ms());
    const { waits } = delivery;
    setTimeout(
      () => {
        if (delivery.lane.closing || delivery.state !== 'waiting' || delivery.waits !== waits)
          return;
        if (attemptNext) book.endWait(delivery);
        else {
          book.leaveLine(delivery);
          book.leaveToTable(delivery);
          this.#options.onRetry(due_ms);
        }
        this.pump();
      },
      Math.min(delay_ms, 2 ** 31 - 1),
    ).unref();
  }

  /** Its subscription has changed: the hold is what it says now. */
  holdAnew(delivery: Delivery): void {
    delivery.waits += 1;
    this.hold(delivery, delivery.due_ms);
  }

  #park(delivery: Delivery): void {
    const { book, clock } = this.#options;
    delivery.state = 'parking';
    book.landed(delivery);
    // Whatever it failed for before, it starts its hold anew when it comes back.
    delivery.first_failed_ms = null;
    const change = changeOf(delivery, 'park', { due_ms: clock.now_ms(), reason: 'parked' });
    this.#change(delivery, change, (applied) => {
      if (applied) {
        this.#options.onEnd('parked');
        book.leaveLine(delivery);
        book.leaveToTable(delivery);
        return this.pump();
      }
      void this.#options
        .refresh()
        .catch(this.#options.onFault)
        .then(() => this.#unpark(delivery));
    });
  }

  #unpark(delivery: Delivery): void {
    if (delivery.lane.closing) return;
    if (delivery.line) delivery.line.sending = null;
    this.#options.book.endWait(delivery);
    this.pump();
  }

  /** Ends without an attempt: cancelled, expired or poison. */
  #end(delivery: Delivery, action: 'cancel' | 'dead', reason: string, outcome: string): void {
    const { book, clock, newId } = this.#options;
    book.landed(delivery);
    book.leaveLine(delivery);
    this.#options.onEnd(action === 'dead' ? 'dead_letter' : 'cancelled');
    const attempt: AttemptRecord = {
      attempt: delivery.attempts_before + delivery.attempts,
      delivery_attempt_id: newId(),
      started_ms: clock.now_ms(),
      duration_us: 0,
      outcome,
      status: null,
      error_code: reason,
      error_message: endings[reason] ?? reason,
      response_excerpt: null,
      dns_us: null,
      connect_us: null,
      tls_us: null,
      first_byte_us: null,
    };
    const change = changeOf(delivery, action, {
      attempt,
      reason,
      last_error: endings[reason] ?? reason,
    });
    this.#change(delivery, change, (applied) => {
      if (applied) book.forget(delivery);
    });
  }
}

/** Ends the attempts of a lane; those that come later are not concerned. */
function cutOff(lane: Lane): void {
  lane.cut.abort();
  lane.cut = new AbortController();
}

/** Whether its line still means something: the ordering may have been changed since it was read. */
function isOrdered(subscription: Subscription | undefined, delivery: Delivery): boolean {
  if (!subscription || subscription.ordering === 'unordered') return false;
  return (subscription.ordering === 'fifo') === (delivery.line?.key === 'fifo');
}
