/**
 * The consumer of a group: membership says which partitions are owned, a worker per owned
 * partition hands batches to the caller, the fetcher fills the workers, the committer tells the
 * group how far it has got.
 *
 * A fault anywhere is survived: each part tries again with back-off and reports through `onFault`.
 */
import { backoff_ms, wait } from '../../base/index.ts';
import type { ConsumeOptions, PartitionLag, StreamConsumer, TopicPartition } from '../port.ts';
import type { Cluster } from './cluster.ts';
import { Committer } from './committer.ts';
import { Coordinator } from './coordinator.ts';
import { fault, KafkaFault } from './errors.ts';
import { Fetcher } from './fetcher.ts';
import { Membership } from './membership.ts';
import { MemoryBudget } from './memory-budget.ts';
import { partitionKey } from './partition-key.ts';
import { PartitionWorker } from './partition-worker.ts';
import { Subscription } from './subscription.ts';

export interface GroupTimings {
  /** A member that is silent for so long loses its partitions. */
  readonly session_timeout_ms: number;
  readonly heartbeat_interval_ms: number;
  /** How long the group waits for a member to join again. */
  readonly rebalance_timeout_ms: number;
  readonly commit_interval_ms: number;
}

const REQUEST_TIMEOUT_ms = 10_000;
/** A revoked partition's running batch may take so long before it is given up. */
const REVOKE_TIMEOUT_ms = 20_000;
const STOP_TIMEOUT_ms = 5_000;
const FLUSH_TIMEOUT_ms = 3_000;
const REPEAT_ms = 5_000;

let consumers = 0;

export class KafkaConsumer implements StreamConsumer {
  readonly #cluster: Cluster;
  readonly #options: ConsumeOptions;
  readonly #budget: MemoryBudget;
  readonly #workers = new Map<string, PartitionWorker>();
  /** Revoked, still ending: owned until the group is joined again. */
  readonly #draining = new Map<string, PartitionWorker>();
  /** Lost while a batch ran: its successor waits for that batch, so that a partition never runs twice here. */
  readonly #unsettled = new Map<string, Promise<void>>();
  readonly #subscription: Subscription;
  readonly #coordinator: Coordinator;
  readonly #membership: Membership;
  readonly #committer: Committer;
  readonly #fetcher: Fetcher;
  readonly #onClosed: () => void;
  readonly #said = new Map<string, number>();
  #stopping: Promise<void> | null = null;
  #started: Promise<void> | null = null;

  constructor(
    cluster: Cluster,
    options: ConsumeOptions,
    timings: GroupTimings,
    onClosed: () => void,
  ) {
    consumers += 1;
    const scope = `consumer-${consumers}`;
    const onFault = (error: Error) => this.#report(error);
    this.#cluster = cluster;
    this.#options = options;
    this.#onClosed = onClosed;
    this.#budget = new MemoryBudget(options.buffered_bytes_max);
    this.#coordinator = new Coordinator(cluster, options.group, scope, {
      join_ms: timings.rebalance_timeout_ms + 15_000,
      request_ms: Math.min(REQUEST_TIMEOUT_ms, timings.session_timeout_ms),
    });
    this.#subscription = new Subscription(cluster, options.topics, {
      interval_ms: options.refresh_interval_ms,
      onChange: () => this.#membership.rejoin(),
      onFault,
    });
    this.#membership = new Membership(cluster, this.#coordinator, {
      ...timings,
      topics: () => this.#subscription.topics(),
      onAssigned: (partitions) => this.#assigned(partitions),
      onRevoked: (partitions) => this.#revoked(partitions),
      onLost: (partitions) => this.#lost(partitions),
      onFault,
    });
    this.#committer = new Committer(this.#coordinator, {
      interval_ms: timings.commit_interval_ms,
      generation: () => this.#membership.generation(),
      owns: (key) => this.#workers.has(key) || this.#draining.has(key),
      onFenced: () => this.#membership.fenced(),
      onFault,
    });
    this.#fetcher = new Fetcher(cluster, {
      scope,
      budget: this.#budget,
      workers: this.#workers,
      onOutOfRange: (worker) => void this.#outOfRange(worker),
      onFault,
    });
  }

  start(): Promise<void> {
    this.#started ??= this.#start();
    return this.#started;
  }

  async #start(): Promise<void> {
    if (this.#stopping !== null) throw new KafkaFault('the consumer was stopped');
    await this.#subscription.start();
    await this.#membership.start();
  }

  stop(timeout_ms = STOP_TIMEOUT_ms): Promise<void> {
    this.#stopping ??= this.#stop(timeout_ms);
    return this.#stopping;
  }

  async #stop(timeout_ms: number): Promise<void> {
    this.#subscription.stop();
    const workers = [...this.#workers.values(), ...this.#draining.values()];
    for (const worker of workers) worker.end();
    const fetcher = this.#fetcher.stop();
    const settled = Promise.all(workers.map((worker) => worker.settled()));
    await within(settled, timeout_ms);
    await this.#committer.flush(FLUSH_TIMEOUT_ms);
    this.#committer.stop();
    this.#workers.clear();
    this.#draining.clear();
    await this.#membership.stop();
    await fetcher;
    this.#onClosed();
  }

  async refresh(): Promise<void> {
    await this.#subscription.refresh();
  }

  assignments(): readonly TopicPartition[] {
    return [...this.#workers.values()].map((worker) => worker.source);
  }

  async lag(): Promise<readonly PartitionLag[]> {
    const workers = [...this.#workers.values()].filter((worker) => worker.position >= 0);
    const ends = await this.#cluster.listOffsets(
      workers.map((worker) => worker.source),
      -1,
    );
    return workers.flatMap((worker) => {
      const end = ends.get(worker.key);
      if (end === undefined) return [];
      const { position } = worker;
      return [{ ...worker.source, position, lag: Math.max(0, end - position) }];
    });
  }

  healthy(): boolean {
    return (
      this.#stopping === null &&
      this.#membership.reachable() &&
      this.#fetcher.healthy() &&
      this.#subscription.healthy()
    );
  }

  /** While a broker is away every part fails many times a second: the same words are said once in a while. */
  #report(error: Error): void {
    if (this.#stopping !== null) return;
    const now_ms = performance.now();
    for (const [message, said_ms] of this.#said) {
      if (now_ms - said_ms > REPEAT_ms) this.#said.delete(message);
    }
    if (this.#said.has(error.message)) return;
    this.#said.set(error.message, now_ms);
    this.#options.onFault(error);
  }

  #assigned(partitions: readonly TopicPartition[]): void {
    if (this.#stopping !== null || partitions.length === 0) return;
    const workers = partitions.map(
      (source) =>
        new PartitionWorker(source, {
          batch_records_max: this.#options.batch_records_max,
          batch_bytes_max: this.#options.batch_bytes_max,
          budget: this.#budget,
          onBatch: (batch) => this.#options.onBatch(batch),
          onSettled: (worker, offset) => {
            const owner = this.#workers.get(worker.key) ?? this.#draining.get(worker.key);
            if (owner === worker) this.#committer.note(worker.source, offset);
          },
          onRoom: () => this.#fetcher.room(),
          onFault: (error) => this.#options.onFault(error),
        }),
    );
    for (const worker of workers) this.#workers.set(worker.key, worker);
    this.#fetcher.wake();
    const waiting = workers.filter((worker) => this.#unsettled.has(worker.key));
    void this.#load(workers.filter((worker) => !waiting.includes(worker)));
    for (const worker of waiting) {
      void this.#unsettled.get(worker.key)?.then(() => this.#load([worker]));
    }
  }

  /** Finds the first offset of each partition, with back-off for as long as they are ours. */
  async #load(workers: readonly PartitionWorker[]): Promise<void> {
    for (let failures = 0; ; failures += 1) {
      const open = workers.filter((worker) => !worker.signal.aborted && !worker.open);
      if (open.length === 0) return;
      try {
        const positions = await this.#positions(open.map((worker) => worker.source));
        for (const worker of open) {
          const position = positions.get(worker.key);
          if (position !== undefined && !worker.signal.aborted) worker.seek(position);
        }
        const missing = open.filter((worker) => !positions.has(worker.key));
        if (missing.length === 0) return;
        await this.#cluster.refresh([...new Set(missing.map((worker) => worker.source.topic))]);
      } catch (error) {
        this.#report(fault('cannot find where to begin reading', error));
      }
      await wait(backoff_ms(failures, 50, 5_000), AbortSignal.any(open.map((one) => one.signal)));
    }
  }

  /** The caller's own positions, else what the group has committed, else the beginning. */
  async #positions(sources: readonly TopicPartition[]): Promise<Map<string, number>> {
    const positions = new Map(await this.#options.loadPositions(sources));
    const unknown = () => sources.filter((source) => !positions.has(partitionKey(source)));
    if (unknown().length > 0) {
      for (const [key, offset] of await this.#committer.committed(unknown())) {
        if (offset >= 0) positions.set(key, offset);
      }
    }
    if (unknown().length > 0) {
      for (const [key, offset] of await this.#cluster.listOffsets(unknown(), -2)) {
        positions.set(key, offset);
      }
    }
    return positions;
  }

  async #revoked(partitions: readonly TopicPartition[]): Promise<void> {
    const workers = this.#take(partitions);
    for (const worker of workers) {
      this.#draining.set(worker.key, worker);
      worker.end();
    }
    const settled = Promise.all(workers.map((worker) => this.#watch(worker)));
    if (!(await within(settled, REVOKE_TIMEOUT_ms))) {
      this.#report(fault('a batch still runs though its partition goes to another member', null));
    }
    await this.#committer.flush(FLUSH_TIMEOUT_ms);
    this.#committer.forget(partitions);
    for (const worker of workers) this.#draining.delete(worker.key);
  }

  #lost(partitions: readonly TopicPartition[]): void {
    this.#committer.forget(partitions);
    for (const worker of this.#take(partitions)) {
      worker.end();
      void this.#watch(worker);
    }
    if (this.#stopping === null && partitions.length > 0) {
      this.#report(fault(`lost the ownership of ${partitions.length} partitions`, null));
    }
  }

  #take(partitions: readonly TopicPartition[]): PartitionWorker[] {
    return partitions.flatMap((source) => {
      const worker = this.#workers.get(partitionKey(source));
      if (worker === undefined) return [];
      this.#workers.delete(worker.key);
      return [worker];
    });
  }

  #watch(worker: PartitionWorker): Promise<void> {
    const settled = worker.settled().finally(() => {
      if (this.#unsettled.get(worker.key) === settled) this.#unsettled.delete(worker.key);
    });
    this.#unsettled.set(worker.key, settled);
    return settled;
  }

  /** Retention has overtaken the reader, or the topic was made anew: go on where the log begins. */
  async #outOfRange(worker: PartitionWorker): Promise<void> {
    const from = worker.fetch_offset;
    try {
      const [starts, ends] = await Promise.all([
        this.#cluster.listOffsets([worker.source], -2),
        this.#cluster.listOffsets([worker.source], -1),
      ]);
      const start = starts.get(worker.key) ?? -1;
      const end = ends.get(worker.key) ?? -1;
      if (start < 0 || end < 0 || (from >= start && from <= end)) return; // no longer so
      if (worker.fetch_offset !== from || worker.signal.aborted) return;
      this.#report(
        new KafkaFault(
          start > from
            ? `${worker.key}: the records ${from} to ${start - 1} were deleted before they were read; going on at ${start}`
            : `${worker.key} ends at ${end}, before ${from} where reading should go on; beginning again at ${start}`,
        ),
      );
      worker.seek(start);
    } catch (error) {
      this.#report(fault(`cannot find the beginning of ${worker.key}`, error));
    }
  }
}

/** False when it took too long (it then goes on by itself). */
async function within(work: Promise<unknown>, timeout_ms: number): Promise<boolean> {
  const done = new AbortController();
  const finished = work.then(() => true);
  const late = wait(timeout_ms, done.signal).then(() => false);
  const result = await Promise.race([finished, late]);
  done.abort();
  return result;
}
