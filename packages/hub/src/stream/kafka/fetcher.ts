/**
 * Fetching: one loop per broker, so that one dead broker holds up no other. Each loop asks for all
 * partitions it may fill, waits at the broker until there is something, hands it out and asks
 * again at once; it never sleeps while there is something to read.
 */
import { type Connection, fetchV12 } from '@platformatic/kafka';
import { backoff_ms, wait } from '../../base/index.ts';
import type { Cluster } from './cluster.ts';
import {
  decodeFetchAnswer,
  decodeRecords,
  type FetchAnswer,
  type FetchedPartition,
} from './decode.ts';
import { fault } from './errors.ts';
import type { MemoryBudget } from './memory-budget.ts';
import type { PartitionWorker } from './partition-worker.ts';

export interface FetcherOptions {
  readonly scope: string;
  readonly budget: MemoryBudget;
  /** Workers of owned partitions by key. */
  readonly workers: ReadonlyMap<string, PartitionWorker>;
  /** The position is outside of what the broker has. */
  onOutOfRange(worker: PartitionWorker): void;
  onFault(fault: Error): void;
}

const FETCH_bytes_max = 1024 * 1024;
const PARTITION_bytes_max = 256 * 1024;
const PARTITION_bytes_min = 16 * 1024;
/** How long a broker holds an empty answer back. */
const LONG_POLL_ms = 500;
/** The same while some partitions are left out, so that they are asked for again soon. */
const SHORT_POLL_ms = 20;
const REQUEST_TIMEOUT_ms = 8_000;
const LEADERLESS_ms = 200;
const READ_COMMITTED = 1;

const OFFSET_OUT_OF_RANGE = 1;
/** A partition that answered with an error is left alone for this long. */
const PARTITION_PAUSE_ms = 100;

export class Fetcher {
  readonly #cluster: Cluster;
  readonly #options: FetcherOptions;
  readonly #stop = new AbortController();
  readonly #loops = new Map<number, Promise<void>>();
  readonly #failing = new Map<number, number>();
  /** Partitions to leave alone until then (monotonic). */
  readonly #paused = new Map<string, number>();
  #room = Promise.withResolvers<void>();
  #turn = 0;

  constructor(cluster: Cluster, options: FetcherOptions) {
    this.#cluster = cluster;
    this.#options = options;
  }

  /** A partition has room again. */
  room(): void {
    this.#room.resolve();
    this.#room = Promise.withResolvers<void>();
  }

  /** Partitions or leaders changed: see that every broker concerned has its loop, and none sleeps. */
  wake(): void {
    this.room();
    if (this.#stop.signal.aborted) return;
    for (const worker of this.#options.workers.values()) {
      const node = this.#cluster.leader(worker.source.topic, worker.source.partition);
      if (!this.#loops.has(node)) this.#start(node);
    }
  }

  /** Whether every broker that leads one of our partitions answers. */
  healthy(): boolean {
    for (const failures of this.#failing.values()) if (failures > 1) return false;
    return true;
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    this.#room.resolve();
    await this.#cluster.connections.close(`${this.#options.scope}-fetch`);
    await Promise.all(this.#loops.values());
  }

  #start(node: number): void {
    const loop = (node < 0 ? this.#awaitLeaders() : this.#loop(node)).finally(() => {
      this.#loops.delete(node);
      this.#failing.delete(node);
      // Something may have moved here between the loop's last look and its end.
      if (this.#workersOf(node).length > 0) this.wake();
    });
    this.#loops.set(node, loop);
  }

  #workersOf(node: number): PartitionWorker[] {
    if (this.#stop.signal.aborted) return [];
    return [...this.#options.workers.values()].filter(
      ({ source }) => this.#cluster.leader(source.topic, source.partition) === node,
    );
  }

  async #awaitLeaders(): Promise<void> {
    for (;;) {
      const workers = this.#workersOf(-1);
      if (workers.length === 0) return;
      await wait(LEADERLESS_ms, this.#stop.signal);
      await this.#refresh(workers);
    }
  }

  async #refresh(workers: readonly PartitionWorker[]): Promise<void> {
    try {
      await this.#cluster.refresh([...new Set(workers.map((worker) => worker.source.topic))]);
      this.wake();
    } catch (error) {
      if (!this.#stop.signal.aborted) this.#options.onFault(fault('no Kafka metadata', error));
    }
  }

  async #loop(node: number): Promise<void> {
    for (;;) {
      const workers = this.#workersOf(node);
      if (workers.length === 0) return;
      const room = this.#room.promise;
      const wanted = this.#wanted(workers);
      if (wanted.length === 0) {
        await Promise.race([room, wait(PARTITION_PAUSE_ms, this.#stop.signal)]);
        continue;
      }
      try {
        const connection = await this.#cluster.connection(
          node,
          `${this.#options.scope}-fetch`,
          REQUEST_TIMEOUT_ms,
        );
        const poll_ms = wanted.length === workers.length ? LONG_POLL_ms : SHORT_POLL_ms;
        const answer = await this.#fetch(connection, wanted, poll_ms);
        this.#failing.set(node, 0);
        await this.#handOut(wanted, answer);
      } catch (error) {
        if (this.#stop.signal.aborted) return;
        const failures = (this.#failing.get(node) ?? 0) + 1;
        this.#failing.set(node, failures);
        this.#options.onFault(fault(`cannot fetch from broker ${node}`, error));
        await wait(backoff_ms(failures - 1, 50, 1_000), this.#stop.signal);
        await this.#refresh(workers);
      }
    }
  }

  /** Partitions with room, first another one each time: a broker fills its answer in this order. */
  #wanted(workers: readonly PartitionWorker[]): Wanted[] {
    const { budget } = this.#options;
    const now_ms = performance.now();
    const share = Math.max(PARTITION_bytes_min, budget.max_bytes / this.#options.workers.size);
    const wanted: Wanted[] = [];
    this.#turn += 1;
    for (let index = 0; index < workers.length; index += 1) {
      const worker = workers[(index + this.#turn) % workers.length] as PartitionWorker;
      if (!worker.open || (this.#paused.get(worker.key) ?? 0) > now_ms) continue;
      // What holds nothing at all may always read a little: a full budget must not stop the healthy ones.
      const full = budget.free_bytes === 0 && !worker.idle;
      if (full || worker.buffered_bytes * 2 > share) continue;
      const bytes = Math.min(PARTITION_bytes_max, share - worker.buffered_bytes);
      wanted.push({
        worker,
        offset: worker.fetch_offset,
        bytes: budget.free_bytes === 0 ? PARTITION_bytes_min : Math.ceil(bytes),
      });
    }
    return wanted;
  }

  #fetch(connection: Connection, wanted: readonly Wanted[], poll_ms: number): Promise<FetchAnswer> {
    const free = this.#options.budget.free_bytes;
    const max_bytes = Math.max(PARTITION_bytes_min, Math.min(FETCH_bytes_max, free));
    const topics = [...Map.groupBy(wanted, (one) => one.worker.source.topic)].map(
      ([topicId, ones]) => ({
        topicId,
        partitions: ones.map((one) => ({
          partition: one.worker.source.partition,
          currentLeaderEpoch: -1,
          fetchOffset: BigInt(one.offset),
          lastFetchedEpoch: -1,
          partitionMaxBytes: one.bytes,
        })),
      }),
    );
    return new Promise((resolve, reject) => {
      connection.send(
        fetchV12.api.key,
        fetchV12.api.version,
        () => fetchV12.createRequest(poll_ms, 1, max_bytes, READ_COMMITTED, 0, -1, topics, [], ''),
        (_correlation, _api, _version, reader) =>
          decodeFetchAnswer(reader.buffer.slice(reader.position)),
        true,
        true,
        (error, answer) => {
          if (error) reject(error);
          else resolve(answer as FetchAnswer);
        },
      );
    });
  }

  async #handOut(wanted: readonly Wanted[], answer: FetchAnswer): Promise<void> {
    if (answer.error_code !== 0) throw new Error(`fetch error ${answer.error_code}`);
    const asked = new Map(wanted.map((one) => [one.worker.key, one]));
    const stale: PartitionWorker[] = [];
    for (const part of answer.partitions) {
      const one = asked.get(`${part.topic}/${part.partition}`);
      if (one === undefined) continue;
      if (part.error_code === 0) {
        this.#give(one, part);
      } else {
        this.#paused.set(one.worker.key, performance.now() + PARTITION_PAUSE_ms);
        if (part.error_code === OFFSET_OUT_OF_RANGE) {
          if (one.worker.fetch_offset === one.offset) {
            this.#options.onOutOfRange(one.worker);
          }
        } else stale.push(one.worker);
      }
    }
    if (stale.length > 0) await this.#refresh(stale);
  }

  #give({ worker, offset }: Wanted, part: FetchedPartition): void {
    if (part.records === null) return;
    const decoded = decodeRecords(worker.source, part.records, offset, part.aborted);
    worker.take(offset, decoded);
  }
}

interface Wanted {
  readonly worker: PartitionWorker;
  readonly offset: number;
  readonly bytes: number;
}
