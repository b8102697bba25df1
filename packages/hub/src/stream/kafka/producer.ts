/**
 * The idempotent producer.
 *
 * Records wait in one queue per partition. A partition has at most one batch under way; whatever
 * arrives meanwhile forms the next one, so load makes batches and nothing waits for time to pass.
 * Batches for the same broker travel in one request.
 *
 * A batch keeps its producer id and sequence through every retry, so the broker stores it once.
 * When retries are used up, nobody knows whether it was stored: the caller gets an error and the
 * producer takes a new id, because a gap in the sequence would block the partition.
 */
import { initProducerIdV4 } from '@platformatic/kafka';
import { backoff_ms, wait } from '../../base/index.ts';
import { partitionForKey } from '../partitioner.ts';
import {
  type OutgoingRecord,
  type RecordPosition,
  RecordTooLargeError,
  UnknownTopicError,
} from '../port.ts';
import { Cluster } from './cluster.ts';
import { encodeBatch, type ProducerIdentity, recordBytes } from './encode.ts';
import { fault, KafkaFault } from './errors.ts';
import { type PartitionResult, produce } from './produce-request.ts';

/** Below the broker's default `message.max.bytes` (1 MiB + 12). */
const BATCH_bytes_max = 1_000_000;
const BATCH_records_max = 10_000;
/** Requests of one broker under way: the second is on its way while the first is written. */
const REQUESTS_PER_BROKER_max = 2;
const REQUEST_bytes_max = 16 * 1024 * 1024;
const UNKNOWN_TOPIC_tries = 3;
/** Most bytes of all `publish` calls together that wait for Kafka; a call beyond it fails at once. */
const WAITING_bytes_max = 128 * 1024 * 1024;
const PRODUCE_TIMEOUT_ms = 5_000;
const ANSWER_TIMEOUT_ms = 8_000;

interface Entry {
  readonly record: OutgoingRecord;
  readonly bytes: number;
  done(offset: number): void;
  failed(error: Error): void;
}

interface Batch {
  readonly entries: readonly Entry[];
  /** When the first try began: retries end `delivery_timeout_ms` later. */
  readonly since_ms: number;
  failures: number;
  /** Not before this time (monotonic). */
  due_ms: number;
  sent: { readonly identity: ProducerIdentity; readonly sequence: number; bytes: Buffer } | null;
}

interface Lane {
  readonly topic: string;
  readonly partition: number;
  readonly queue: Entry[];
  batch: Batch | null;
  in_flight: boolean;
  identity: ProducerIdentity | null;
  sequence: number;
}

export interface ProducerOptions {
  readonly delivery_timeout_ms: number;
  onFault(fault: Error): void;
}

export class Producer {
  readonly #cluster: Cluster;
  readonly #options: ProducerOptions;
  readonly #lanes = new Map<string, Lane>();
  /** Lanes with something to send. */
  readonly #busy = new Set<Lane>();
  readonly #requests = new Map<number, number>();
  readonly #stop = new AbortController();
  #identity: Promise<ProducerIdentity> | null = null;
  #keyless = Math.floor(Math.random() * 1_000);
  #pumping = false;
  #again = false;
  #timer: NodeJS.Timeout | undefined;
  #waiting_bytes = 0;

  constructor(cluster: Cluster, options: ProducerOptions) {
    this.#cluster = cluster;
    this.#options = options;
  }

  async publish(records: readonly OutgoingRecord[]): Promise<RecordPosition[]> {
    if (records.length === 0) return [];
    await this.#knowTopics(records);
    this.#keyless += 1;
    const partitions = records.map((record) => this.#partitionOf(record));
    const bytes = records.map(recordBytes);
    const total_bytes = bytes.reduce((sum, one) => sum + one, 0);
    if (this.#waiting_bytes > 0 && this.#waiting_bytes + total_bytes > WAITING_bytes_max) {
      throw new KafkaFault('too many records are waiting to be published: try again later');
    }
    this.#waiting_bytes += total_bytes;
    try {
      return await this.#publishAll(records, partitions, bytes);
    } finally {
      this.#waiting_bytes -= total_bytes;
    }
  }

  /** Settles once every record has, so that an error never leaves a record behind that is still on its way. */
  #publishAll(
    records: readonly OutgoingRecord[],
    partitions: readonly number[],
    bytes: readonly number[],
  ): Promise<RecordPosition[]> {
    return new Promise((resolve, reject) => {
      const positions = Array.from<RecordPosition>({ length: records.length });
      let open = records.length;
      let failure: Error | null = null;
      const finish = () => {
        open -= 1;
        if (open > 0) return;
        if (failure === null) resolve(positions);
        else reject(failure);
      };
      for (const [index, record] of records.entries()) {
        const partition = partitions[index] as number;
        this.#enqueue(partition, {
          record,
          bytes: bytes[index] as number,
          done: (offset) => {
            positions[index] = { topic: record.topic, partition, offset };
            finish();
          },
          failed: (error) => {
            failure ??= error;
            finish();
          },
        });
      }
      this.#pump();
    });
  }

  /** Fails what is still waiting. */
  close(): void {
    this.#stop.abort();
    clearTimeout(this.#timer);
    for (const lane of this.#lanes.values()) {
      const error = fault('the stream was closed', null);
      for (const entry of lane.batch?.entries ?? []) entry.failed(error);
      for (const entry of lane.queue.splice(0)) entry.failed(error);
    }
  }

  async #knowTopics(records: readonly OutgoingRecord[]): Promise<void> {
    const unknown = () => {
      const names = new Set(records.map((record) => record.topic));
      return [...names].filter((name) => this.#cluster.topic(name) === undefined);
    };
    for (let attempt = 0; unknown().length > 0; attempt += 1) {
      const [first] = unknown();
      if (attempt === UNKNOWN_TOPIC_tries) throw new UnknownTopicError(first as string);
      if (attempt > 0) await wait(50 * attempt, this.#stop.signal);
      await this.#retrying(() => this.#cluster.refresh(unknown()));
    }
  }

  /** Tries again while no broker answers, for as long as a batch would be. */
  async #retrying<T>(work: () => Promise<T>): Promise<T> {
    const until_ms = performance.now() + this.#options.delivery_timeout_ms;
    for (let failures = 0; ; failures += 1) {
      try {
        return await work();
      } catch (error) {
        const out_of_time = performance.now() > until_ms || this.#stop.signal.aborted;
        if (out_of_time || Cluster.refused(error) !== null) throw error;
        await wait(backoff_ms(failures, 20, 1_000), this.#stop.signal);
      }
    }
  }

  #partitionOf(record: OutgoingRecord): number {
    const count = this.#cluster.topic(record.topic)?.partitions.length ?? 0;
    if (record.partition !== undefined) {
      if (record.partition >= 0 && record.partition < count) return record.partition;
      throw new KafkaFault(
        `the topic ${record.topic} has ${count} partitions, so there is no partition ${record.partition}`,
      );
    }
    return record.key === null ? this.#keyless % count : partitionForKey(record.key, count);
  }

  #enqueue(partition: number, entry: Entry): void {
    const { topic } = entry.record;
    const key = `${topic}/${partition}`;
    let lane = this.#lanes.get(key);
    if (lane === undefined) {
      lane = {
        topic,
        partition,
        queue: [],
        batch: null,
        in_flight: false,
        identity: null,
        sequence: 0,
      };
      this.#lanes.set(key, lane);
    }
    this.#busy.add(lane);
    lane.queue.push(entry);
  }

  /** Sends what may be sent now; runs again whenever a request ends or something is queued. */
  #pump(): void {
    if (this.#pumping) {
      this.#again = true;
      return;
    }
    this.#pumping = true;
    this.#again = false;
    void this.#pumpOnce().finally(() => {
      this.#pumping = false;
      if (this.#again && !this.#stop.signal.aborted) this.#pump();
    });
  }

  async #pumpOnce(): Promise<void> {
    let identity: ProducerIdentity;
    try {
      identity = await this.#producerIdentity();
    } catch (error) {
      this.#failWaiting(error);
      return;
    }
    const now_ms = performance.now();
    let next_due_ms = Number.POSITIVE_INFINITY;
    const byBroker = new Map<number, Lane[]>();
    for (const lane of this.#busy) {
      if (lane.in_flight) continue;
      const batch = this.#nextBatch(lane, now_ms);
      if (batch === null) {
        this.#busy.delete(lane);
      } else if (batch.due_ms > now_ms) {
        next_due_ms = Math.min(next_due_ms, batch.due_ms);
      } else {
        const leader = this.#cluster.leader(lane.topic, lane.partition);
        const lanes = byBroker.get(leader);
        if (lanes === undefined) byBroker.set(leader, [lane]);
        else lanes.push(lane);
      }
    }
    for (const [broker, lanes] of byBroker) this.#send(broker, lanes, identity);
    clearTimeout(this.#timer);
    if (next_due_ms < Number.POSITIVE_INFINITY) {
      this.#timer = setTimeout(() => this.#pump(), Math.max(1, next_due_ms - now_ms));
    }
  }

  #nextBatch(lane: Lane, now_ms: number): Batch | null {
    if (lane.batch !== null) return lane.batch;
    let count = 0;
    let bytes = 0;
    for (const entry of lane.queue) {
      if (count > 0 && (bytes + entry.bytes > BATCH_bytes_max || count === BATCH_records_max))
        break;
      bytes += entry.bytes;
      count += 1;
    }
    if (count === 0) return null;
    const entries = lane.queue.splice(0, count);
    lane.batch = { entries, since_ms: now_ms, failures: 0, due_ms: 0, sent: null };
    return lane.batch;
  }

  #send(broker: number, lanes: Lane[], identity: ProducerIdentity): void {
    if (broker < 0) {
      void this.#settle(lanes, fault('the partition has no leader', null));
      return;
    }
    const running = this.#requests.get(broker) ?? 0;
    if (running >= REQUESTS_PER_BROKER_max) return;
    let bytes = 0;
    const taken: Lane[] = [];
    for (const lane of lanes) {
      const batch = lane.batch as Batch;
      const sent = batch.sent ?? number(lane, batch, identity);
      if (taken.length > 0 && bytes + sent.bytes.length > REQUEST_bytes_max) break;
      bytes += sent.bytes.length;
      lane.in_flight = true;
      taken.push(lane);
    }
    this.#requests.set(broker, running + 1);
    void this.#request(broker, taken);
  }

  async #request(broker: number, lanes: Lane[]): Promise<void> {
    let answer: ReadonlyMap<string, PartitionResult> | Error;
    try {
      const connection = await this.#cluster.connection(broker, 'produce', ANSWER_TIMEOUT_ms);
      const parts = lanes.map((lane) => ({
        topic: lane.topic,
        partition: lane.partition,
        batch: (lane.batch as Batch).sent?.bytes as Buffer,
      }));
      answer = await produce(connection, parts, PRODUCE_TIMEOUT_ms);
    } catch (error) {
      answer = error instanceof Error ? error : new Error(String(error));
    }
    this.#requests.set(broker, (this.#requests.get(broker) ?? 1) - 1);
    await this.#settle(lanes, answer);
  }

  async #settle(
    lanes: Lane[],
    answer: ReadonlyMap<string, PartitionResult> | Error,
  ): Promise<void> {
    const stale: string[] = [];
    for (const lane of lanes) {
      const batch = lane.batch;
      lane.in_flight = false;
      if (batch === null) continue;
      const result =
        answer instanceof Error ? answer : answer.get(`${lane.topic}/${lane.partition}`);
      if (result !== undefined && !(result instanceof Error) && result.error === null) {
        lane.batch = null;
        for (const [index, entry] of batch.entries.entries())
          entry.done(result.base_offset + index);
      } else if (this.#failedTry(lane, batch, result)) {
        stale.push(lane.topic);
      }
    }
    if (stale.length > 0) {
      try {
        await this.#cluster.refresh([...new Set(stale)]);
      } catch (error) {
        this.#options.onFault(fault('cannot read the state of topics', error));
      }
    }
    if (!this.#stop.signal.aborted) this.#pump();
  }

  /** Decides what follows a failed try. True when leaders should be looked up again. */
  #failedTry(lane: Lane, batch: Batch, result: PartitionResult | Error | undefined): boolean {
    const cause =
      result instanceof Error
        ? result
        : (result?.error ?? fault('the broker left it unanswered', null));
    const name = result instanceof Error || result === undefined ? '' : result.error_name;
    const refused = Cluster.refused(cause);
    if (name === 'MESSAGE_TOO_LARGE' || name === 'RECORD_LIST_TOO_LARGE') {
      this.#tooLarge(lane, batch, cause);
      return false;
    }
    if (lostState.has(name)) {
      // The broker no longer knows our sequence (old, or deleted with its records): begin anew.
      this.#identity = null;
      batch.sent = null;
      lane.identity = null;
    }
    batch.failures += 1;
    const out_of_time = performance.now() - batch.since_ms > this.#options.delivery_timeout_ms;
    if (this.#cluster.topic(lane.topic) === undefined && batch.failures >= UNKNOWN_TOPIC_tries) {
      this.#giveUp(lane, batch, new UnknownTopicError(lane.topic, { cause }));
      return false;
    }
    const final = refused !== null || (name !== '' && !retriable.has(name) && !lostState.has(name));
    if (!final && !out_of_time) {
      batch.due_ms = performance.now() + backoff_ms(batch.failures - 1, 20, 1_000);
      return name !== 'NOT_ENOUGH_REPLICAS' && !lostState.has(name);
    }
    this.#giveUp(lane, batch, refused ?? publishError(lane, name, cause));
    return false;
  }

  #giveUp(lane: Lane, batch: Batch, error: Error): void {
    lane.batch = null;
    lane.identity = null;
    this.#identity = null;
    for (const entry of batch.entries) entry.failed(error);
  }

  /** Nothing of a refused batch was stored: halve it, until the one record that is too large stands alone. */
  #tooLarge(lane: Lane, batch: Batch, cause: Error): void {
    lane.sequence -= batch.entries.length;
    lane.batch = null;
    const [only] = batch.entries;
    if (batch.entries.length === 1 && only !== undefined) {
      only.failed(
        new RecordTooLargeError(
          `a record of ${only.bytes} bytes is too large for the topic ${lane.topic}`,
          { cause },
        ),
      );
      return;
    }
    const half = Math.ceil(batch.entries.length / 2);
    lane.queue.unshift(...batch.entries.slice(half));
    const entries = batch.entries.slice(0, half);
    lane.batch = { entries, since_ms: batch.since_ms, failures: 0, due_ms: 0, sent: null };
  }

  #producerIdentity(): Promise<ProducerIdentity> {
    this.#identity ??= this.#askIdentity().catch((error: unknown) => {
      this.#identity = null;
      throw error;
    });
    return this.#identity;
  }

  async #askIdentity(): Promise<ProducerIdentity> {
    const answer = await this.#retrying(() =>
      this.#cluster.askAny(initProducerIdV4.api, null, 0, -1n, -1),
    );
    return { producer_id: answer.producerId, epoch: answer.producerEpoch };
  }

  #failWaiting(error: unknown): void {
    const failure = Cluster.refused(error) ?? fault('cannot publish', error);
    for (const lane of this.#busy) {
      if (lane.in_flight) continue;
      this.#busy.delete(lane);
      const entries = [...(lane.batch?.entries ?? []), ...lane.queue.splice(0)];
      lane.batch = null;
      lane.identity = null;
      for (const entry of entries) entry.failed(failure);
    }
  }
}

/** Gives the batch its sequence; a lane whose producer changed starts again at 0. */
function number(lane: Lane, batch: Batch, identity: ProducerIdentity): NonNullable<Batch['sent']> {
  if (lane.identity !== identity) {
    lane.identity = identity;
    lane.sequence = 0;
  }
  const records = batch.entries.map((entry) => entry.record);
  const bytes = encodeBatch(records, identity, lane.sequence, Date.now());
  batch.sent = { identity, sequence: lane.sequence, bytes };
  lane.sequence = (lane.sequence + records.length) % 2 ** 31;
  return batch.sent;
}

function publishError(lane: Lane, name: string, cause: Error): Error {
  if (name === 'UNKNOWN_TOPIC_OR_PARTITION') return new UnknownTopicError(lane.topic, { cause });
  return fault(`cannot publish to ${lane.topic}/${lane.partition}`, cause);
}

const lostState = new Set([
  'OUT_OF_ORDER_SEQUENCE_NUMBER',
  'UNKNOWN_PRODUCER_ID',
  'INVALID_PRODUCER_EPOCH',
  'INVALID_PRODUCER_ID_MAPPING',
]);

const retriable = new Set([
  'NOT_LEADER_OR_FOLLOWER',
  'LEADER_NOT_AVAILABLE',
  'UNKNOWN_TOPIC_OR_PARTITION',
  'UNKNOWN_TOPIC_ID',
  'FENCED_LEADER_EPOCH',
  'NOT_ENOUGH_REPLICAS',
  'NOT_ENOUGH_REPLICAS_AFTER_APPEND',
  'REQUEST_TIMED_OUT',
  'NETWORK_EXCEPTION',
  'CORRUPT_MESSAGE',
  'KAFKA_STORAGE_ERROR',
  'THROTTLING_QUOTA_EXCEEDED',
  'COORDINATOR_LOAD_IN_PROGRESS',
]);
