import type pg from 'pg';
import type { Service } from '../base/index.ts';
import { wait } from '../base/index.ts';
import { Recorder } from '../outcome/index.ts';
import { LaneBook } from './book.ts';
import { SubscriptionCache, type SubscriptionSource, verdictOn } from './cache.ts';
import { Listener } from './listen.ts';
import { Loader } from './loader.ts';
import { deliveryKey } from './model.ts';
import { Sender, type SenderOptions } from './sender.ts';
import { type Lease, Shards, shards_total } from './shards.ts';
import {
  lanesResuming,
  lanesWithWork,
  newestBatch,
  newestSubscriptionVersion,
  nextRetryDue,
  type Position,
  pruneBatchLog,
  pruneProcesses,
  readTail,
  savePositions,
  takeOverSuspects,
} from './statements.ts';

/**
 * Delivery: leases shards, follows the log of what ingest adds, reads the heads of lanes, sends,
 * and records. Several processes share the work by shards; a lane is worked by one at a time.
 */
export interface DispatcherOptions
  extends Pick<
    SenderOptions,
    | 'sinks'
    | 'secrets'
    | 'schedule_seconds'
    | 'poison_threshold'
    | 'clock'
    | 'random'
    | 'newId'
    | 'onAttempt'
    | 'onEnd'
    | 'onFault'
  > {
  /** Short statements only; generic plans. */
  readonly pool: pg.Pool;
  /** For the LISTEN connection. */
  readonly connection: pg.ClientConfig;
  readonly subscriptions: SubscriptionSource;
  readonly process_id: string;
  readonly role: string;
  /** Attempts in flight = workers × claim_batch. */
  readonly workers: number;
  readonly claim_batch: number;
  /** Poll while there is work; it backs off to a second while there is none. */
  readonly idle_interval_ms: number;
  readonly lease_ms: number;
  /** How long attempts in flight may go on at stop. */
  readonly drain_ms: number;
}

const limits = {
  tailBatches_max: 200,
  idleInterval_ms_max: 2_000,
  retryPoll_ms: { least: 100, most: 5_000 },
  positions_ms: 2_000,
  /** Changed subscriptions are announced; this is for announcements that got lost. */
  refresh_ms: 5_000,
  slowCheck_ms: 100,
  /** Ingest slows down while more than this is read ahead and no slot is free; but never stops. */
  paceBuffered: 500,
  paceWait_ms_max: 100,
  /** After the cut at the end of the drain. */
  abandon_ms: 5_000,
  batchLogKept_ms: 3_600_000,
  batchLogPrune_ms: 600_000,
};

export interface DispatcherStats {
  readonly in_flight: number;
  readonly buffered: number;
  readonly lanes: number;
  readonly shards: number;
  readonly unrecorded: number;
}

export class Dispatcher implements Service {
  readonly #options: DispatcherOptions;
  readonly #cache: SubscriptionCache;
  readonly #book: LaneBook;
  readonly #recorder: Recorder;
  readonly #sender: Sender;
  readonly #loader: Loader;
  readonly #shards: Shards;
  readonly #listener: Listener;
  readonly #abort = new AbortController();
  readonly #unclean = new Set<number>();
  readonly #takenOver = new WeakSet<Lease>();
  #draining = false;
  #loops: Promise<unknown>[] = [];
  #cursor: number | null = null;
  #nextRetry_ms = 0;
  #wakeTail: () => void = () => {};
  #wakeRetries: () => void = () => {};
  #lastLoop_ms = 0;
  #stopping: Promise<void> | null = null;

  constructor(options: DispatcherOptions) {
    this.#options = options;
    const { pool, clock, onFault } = options;
    this.#cache = new SubscriptionCache(options.subscriptions, (numbers) =>
      this.#lookForResumed(numbers),
    );
    this.#book = new LaneBook(this.#cache, clock, () => this.#sender.pump());
    this.#recorder = new Recorder({ pool, onFault });
    this.#sender = new Sender({
      ...options,
      book: this.#book,
      cache: this.#cache,
      recorder: this.#recorder,
      slots: options.workers * options.claim_batch,
      may: () => !this.#draining && this.#shards.usable(),
      leased: () => this.#shards.usable(),
      onRetry: (due_ms) => this.#retryAt(due_ms),
      refresh: () => this.#refresh(),
      fill: () => void this.#loader.fill(),
    });
    this.#loader = new Loader({
      pool,
      book: this.#book,
      cache: this.#cache,
      hold: (delivery, due_ms) => this.#sender.hold(delivery, due_ms),
      touch: (lane) => this.#touch(lane),
      refresh: () => this.#refresh(),
      pump: () => this.#sender.pump(),
      onFault,
    });
    this.#shards = new Shards({
      pool,
      process_id: options.process_id,
      role: options.role,
      lease_ms: options.lease_ms,
      clock,
      onFault,
      listener: {
        acquired: (leases, unclean) => this.#acquired(leases, unclean),
        busy: (shards) => this.#sender.busy(shards),
        releasing: (shards) => this.#releasing(shards),
        lost: (shards) => this.#book.drop(new Set(shards)),
        renewed: () => this.#sender.pump(),
      },
    });
    this.#listener = new Listener(
      options.connection,
      {
        // The payload is the batch's last sequence: what this process has ingested itself it has read by then.
        hub_ingested: (sequence) => {
          if (sequence === '' || Number(sequence) > (this.#cursor ?? 0)) this.#wakeTail();
        },
        hub_subscriptions: () => void this.#refresh().catch(onFault),
        hub_retries: () => this.#retryAt(0),
      },
      onFault,
    );
  }

  async start(): Promise<void> {
    if (this.#loops.length > 0) return;
    this.#lastLoop_ms = this.#options.clock.monotonic_ms();
    this.#loops = [this.#followTail(), this.#followRetries(), this.#keepHouse(), this.#watchSlow()];
    await this.#listener.start();
    await this.#shards.start();
  }

  /** Lets attempts in flight finish, records them, saves positions and hands the shards back. */
  stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  async #stop(): Promise<void> {
    this.#draining = true;
    this.#abort.abort();
    this.#wakeTail();
    this.#wakeRetries();
    const cut = setTimeout(() => this.#sender.abort(), this.#options.drain_ms);
    const ceiling = Promise.withResolvers<void>();
    const giveUp = setTimeout(() => {
      this.#sender.abandon();
      this.#recorder.abandon();
      ceiling.resolve();
    }, this.#options.drain_ms + limits.abandon_ms);
    await Promise.race([ceiling.promise, this.#handOver()]);
    clearTimeout(cut);
    clearTimeout(giveUp);
  }

  async #handOver(): Promise<void> {
    await this.#listener.stop();
    await Promise.allSettled(this.#loops);
    await this.#shards.stop();
  }

  /** True while the loops turn and the database answers them. */
  healthy(): boolean {
    return this.#options.clock.monotonic_ms() - this.#lastLoop_ms < 10_000;
  }

  /**
   * Ingest in this process waits for it before each batch: while deliveries that could be sent wait
   * for a slot, the backlog grows in the stream, where it is cheap. Waiting lanes slow nobody.
   */
  async whenKeepingPace(): Promise<void> {
    for (let waited_ms = 0; this.#behind() && waited_ms < limits.paceWait_ms_max; waited_ms += 5) {
      await wait(5, this.#abort.signal);
    }
  }

  #behind(): boolean {
    return this.#sender.saturated() && this.#book.buffered > limits.paceBuffered;
  }

  /** Ingest in this process has added deliveries: no need to wait for the notification. */
  wake(): void {
    this.#wakeTail();
  }

  stats(): DispatcherStats {
    return {
      in_flight: this.#sender.in_flight,
      buffered: this.#book.buffered,
      lanes: this.#book.lanes.size,
      shards: this.#shards.leases.size,
      unrecorded: this.#recorder.backlog(),
    };
  }

  /**
   * Leases first, look for work second: what ingest adds in between is seen by one or the other.
   * A shard counts as taken over once its suspects are known; nothing of it is loaded before.
   */
  #acquired(leases: readonly Lease[], unclean: ReadonlySet<number>): void {
    for (const shard of unclean) this.#unclean.add(shard);
    void this.#takeOver(leases, unclean);
  }

  async #takeOver(leases: readonly Lease[], unclean: ReadonlySet<number>): Promise<void> {
    for (let failures = 0; !this.#abort.signal.aborted; failures += 1) {
      const held = leases.filter((lease) => this.#shards.leases.get(lease.shard) === lease);
      if (held.length === 0) return;
      try {
        if (this.#cursor === null) {
          this.#cache.startFrom(await newestSubscriptionVersion(this.#options.pool));
          this.#cursor = await newestBatch(this.#options.pool);
        }
        const shards = held.map((lease) => lease.shard);
        await this.#learnSuspects(shards, unclean);
        for (const lease of held) this.#takenOver.add(lease);
        for (const lane of await lanesWithWork(this.#options.pool, shards))
          this.#touch(lane, unclean);
        this.#retryAt(0);
        void this.#loader.fill();
        return;
      } catch (error) {
        this.#options.onFault(
          new Error('shards could not be taken over; trying again', { cause: error }),
        );
        await wait(Math.min(200 * 2 ** failures, 5_000), this.#abort.signal);
      }
    }
  }

  async #learnSuspects(shards: readonly number[], unclean: ReadonlySet<number>): Promise<void> {
    for (const suspect of await takeOverSuspects(this.#options.pool, shards, unclean)) {
      this.#book.suspects.set(
        deliveryKey(suspect.lane_id, suspect.seq, suspect.subscription_number),
        suspect.crashes,
      );
    }
  }

  #touch(lane: number, unclean: ReadonlySet<number> = this.#unclean): void {
    const lease = this.#shards.leases.get(lane % shards_total);
    if (!lease || !this.#takenOver.has(lease)) return;
    this.#book.touch(lane, lease.shard, lease.token, unclean.has(lease.shard));
  }

  async #releasing(shards: readonly number[]): Promise<void> {
    const set = new Set(shards);
    for (const shard of shards) {
      const lease = this.#shards.leases.get(shard);
      if (lease) this.#takenOver.delete(lease); // lanes that have been idle so far stay so
    }
    const lanes = [...this.#book.lanes.values()].filter((lane) => set.has(lane.shard));
    for (const lane of lanes) lane.closing = true;
    await this.#sender.quiet(set);
    await this.#recorder.flushed();
    await this.#save(this.#positions(set));
  }

  #positions(shards?: ReadonlySet<number>) {
    const positions: Position[] = [];
    for (const lane of this.#book.lanes.values()) {
      if (!lane.loaded || (shards && !shards.has(lane.shard))) continue;
      const settled_through = lane.settledThrough();
      if (settled_through <= lane.saved_through) continue;
      positions.push({ lane_id: lane.id, settled_through, shard: lane.shard, token: lane.token });
    }
    return positions;
  }

  async #save(positions: readonly Position[]): Promise<void> {
    await savePositions(this.#options.pool, positions);
    for (const { lane_id, settled_through, token } of positions) {
      const lane = this.#book.lanes.get(lane_id);
      if (lane?.token === token) lane.saved_through = settled_through;
    }
  }

  async #followTail(): Promise<void> {
    let interval_ms = this.#options.idle_interval_ms;
    while (!this.#abort.signal.aborted) {
      const woken = this.#sleep(interval_ms, (wake) => (this.#wakeTail = wake));
      let found = 0;
      try {
        if (this.#cursor !== null) found = await this.#tail(this.#cursor);
        this.#lastLoop_ms = this.#options.clock.monotonic_ms();
      } catch (error) {
        this.#options.onFault(
          new Error('the batch log could not be read; trying again', { cause: error }),
        );
      }
      const busy = found > 0 || this.#sender.in_flight > 0;
      interval_ms = busy
        ? this.#options.idle_interval_ms
        : Math.min(interval_ms * 1.5, limits.idleInterval_ms_max);
      // What comes after this read wakes the sleep that began before it; a full page may have a next one.
      if (found < limits.tailBatches_max) await woken;
    }
  }

  /** How many batches were new. */
  async #tail(cursor: number): Promise<number> {
    const batches = await readTail(this.#options.pool, cursor, limits.tailBatches_max);
    for (const batch of batches) {
      for (const lane of batch.lanes) this.#touch(lane);
      this.#cursor = batch.seq_to;
    }
    if (batches.length > 0 || this.#book.hungry()) void this.#loader.fill();
    return batches.length;
  }

  async #followRetries(): Promise<void> {
    const { clock } = this.#options;
    let polled_ms = Number.NEGATIVE_INFINITY;
    while (!this.#abort.signal.aborted) {
      const now_ms = this.#options.clock.now_ms();
      const { least, most } = limits.retryPoll_ms;
      if (now_ms < this.#nextRetry_ms) {
        await this.#sleep(
          Math.min(this.#nextRetry_ms - now_ms, most),
          (wake) => (this.#wakeRetries = wake),
        );
        // The wall clock may step back; polling does not stop for that.
        const overdue = clock.monotonic_ms() - polled_ms >= most;
        if (!overdue && clock.now_ms() < this.#nextRetry_ms) continue;
      }
      polled_ms = clock.monotonic_ms();
      this.#nextRetry_ms = now_ms + most;
      try {
        const shards = [...this.#shards.leases.values()]
          .filter((lease) => this.#takenOver.has(lease))
          .map((lease) => lease.shard);
        const more = shards.length > 0 && (await this.#loader.dueRetries(shards));
        if (!more) for (const shard of shards) this.#unclean.delete(shard);
        this.#sender.pump();
        const due_ms = more ? 0 : await nextRetryDue(this.#options.pool, shards);
        if (due_ms !== null) this.#retryAt(Math.max(due_ms, this.#options.clock.now_ms() + least));
      } catch (error) {
        this.#options.onFault(
          new Error('due retries could not be read; trying again', { cause: error }),
        );
        this.#retryAt(this.#options.clock.now_ms() + 500);
      }
      await wait(least, this.#abort.signal);
    }
  }

  #retryAt(due_ms: number): void {
    if (due_ms >= this.#nextRetry_ms) return;
    this.#nextRetry_ms = due_ms;
    this.#wakeRetries();
  }

  /** Takes over changed subscriptions. */
  async #refresh(): Promise<void> {
    for (const subscription of await this.#cache.refresh()) {
      for (const lane of this.#book.lanes.values()) this.#book.configure(lane, subscription);
      for (const head of this.#book.waiting(subscription.number)) {
        if (verdictOn(subscription) === 'send') this.#sender.holdAnew(head);
        else this.#book.endWait(head);
      }
    }
    void this.#loader.fill();
    this.#sender.pump();
  }

  async #lookForResumed(numbers: readonly number[]): Promise<() => void> {
    const found = await lanesResuming(this.#options.pool, numbers);
    return () => {
      for (const { lane_id, subscription_number } of found) {
        const lane = this.#book.lanes.get(lane_id);
        if (lane) this.#loader.resume(lane, subscription_number);
        else this.#touch(lane_id);
      }
    };
  }

  async #keepHouse(): Promise<void> {
    let pruned_ms = 0;
    let refreshed_ms = 0;
    while (!this.#abort.signal.aborted) {
      await wait(limits.positions_ms, this.#abort.signal);
      try {
        const positions = this.#positions();
        if (positions.length > 0) await this.#save(positions);
        const now_ms = this.#options.clock.monotonic_ms();
        if (now_ms - refreshed_ms > limits.refresh_ms) {
          refreshed_ms = now_ms;
          await this.#refresh();
        }
        if (this.#shards.leases.has(0) && now_ms - pruned_ms > limits.batchLogPrune_ms) {
          pruned_ms = now_ms;
          await pruneBatchLog(this.#options.pool, limits.batchLogKept_ms);
          await pruneProcesses(this.#options.pool, limits.batchLogKept_ms);
        }
      } catch (error) {
        this.#options.onFault(new Error('housekeeping failed; trying again', { cause: error }));
      }
    }
  }

  async #watchSlow(): Promise<void> {
    while (!this.#abort.signal.aborted) {
      await wait(limits.slowCheck_ms, this.#abort.signal);
      this.#sender.sortOutSlow();
    }
  }

  /** Sleeps until the time is up or someone wakes it; a wake-up before the sleep counts too. */
  #sleep(duration_ms: number, register: (wake: () => void) => void): Promise<void> {
    if (this.#abort.signal.aborted) return Promise.resolve();
    // A bare timer: an abort signal per sleep makes an error with its stack at every wake-up, 6 %
    // of the hub's work under a light load. `#stop` wakes all sleepers itself.
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, duration_ms);
      register(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }
}
