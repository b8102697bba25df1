/**
 * The stream port: the platform's internal log, seen from the hub and the bus.
 *
 * Two adapters implement it and pass the same conformance suite: `kafka/` (a real Kafka cluster)
 * and `embedded/` (log tables in Postgres). A record belongs to a topic and a partition; inside a
 * partition offsets grow and order is kept; records with one key share a partition.
 */

/** A header as it travels: raw bytes, in order, repeats kept. */
export type RawHeader = readonly [key: Buffer, value: Buffer];

export interface TopicPartition {
  readonly topic: string;
  readonly partition: number;
}

/** One record as read. `offset` and `timestamp_ms` are safe integers. A null value is legal. */
export interface StreamRecord extends TopicPartition {
  readonly offset: number;
  readonly timestamp_ms: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: readonly RawHeader[];
}

/** A record to append. Without `partition` the key decides (murmur2 as Kafka's own producer does); without a key any partition. */
export interface OutgoingRecord {
  readonly topic: string;
  readonly partition?: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: readonly RawHeader[];
  readonly timestamp_ms?: number;
}

export interface RecordPosition extends TopicPartition {
  readonly offset: number;
}

export interface TopicSpec {
  readonly name: string;
  readonly partitions: number;
  readonly retention_ms?: number;
}

/** Records of one partition, in order, never empty. The next batch of that partition waits until this one is settled. */
export interface PartitionBatch extends TopicPartition {
  readonly records: readonly StreamRecord[];
  /** Aborted when the partition is taken away or the consumer stops. */
  readonly signal: AbortSignal;
}

export interface ConsumeOptions {
  readonly group: string;
  /** Full topic names must match. New matching topics are picked up within `refresh_interval_ms` or at `refresh()`. */
  readonly topics: RegExp;
  readonly refresh_interval_ms: number;
  /** Most records and (roughly) most value bytes in one batch. A batch is what has arrived; nothing waits to fill it. */
  readonly batch_records_max: number;
  readonly batch_bytes_max: number;
  /** Most bytes held in memory for all partitions together; fetching pauses beyond it. */
  readonly buffered_bytes_max: number;
  /**
   * Positions that the caller has stored itself, for partitions just assigned. They win over the
   * group's committed offsets; a partition not in the answer starts at the committed offset, or
   * else at the beginning. Retried with back-off while it throws. Map key: `${topic}/${partition}`.
   */
  loadPositions(partitions: readonly TopicPartition[]): Promise<ReadonlyMap<string, number>>;
  /**
   * Called with at most one batch per partition at a time; partitions run side by side. Resolves
   * with the next offset to read once everything before it is durable: the consumer commits that
   * offset to the group and goes on there (even where it differs from the end of the batch, in
   * either direction). While it throws, the same records are offered again with back-off and only
   * this partition waits.
   */
  onBatch(batch: PartitionBatch): Promise<number>;
  /** Told about every fault that the consumer survives (lost broker, failed commit, failing batch …). */
  onFault(fault: Error): void;
}

export interface PartitionLag extends TopicPartition {
  /** Next offset to be handled here. */
  readonly position: number;
  /** Records in the partition beyond `position`. */
  readonly lag: number;
}

export interface StreamConsumer {
  /** Resolves when the group has been joined for the first time. */
  start(): Promise<void>;
  /** Stops fetching, waits for running batches (at most `timeout_ms`), commits, leaves the group. Idempotent. */
  stop(timeout_ms?: number): Promise<void>;
  /** Looks for new topics and partitions now. */
  refresh(): Promise<void>;
  assignments(): readonly TopicPartition[];
  lag(): Promise<readonly PartitionLag[]>;
  /** False while the consumer cannot reach the stream. */
  healthy(): boolean;
}

export interface Stream {
  /** Appends; resolves only once every record is durable (acks from all in-sync replicas; a commit in Postgres). One position per record, in order. */
  publish(records: readonly OutgoingRecord[]): Promise<readonly RecordPosition[]>;
  /** Builds a consumer; nothing happens until its `start()`. */
  consume(options: ConsumeOptions): StreamConsumer;
  /** Creates what is missing; an existing topic is left as it is. */
  ensureTopics(topics: readonly TopicSpec[]): Promise<void>;
  listTopics(): Promise<readonly { name: string; partitions: number }[]>;
  /** Throws with a clear message when the stream cannot be reached. */
  ping(): Promise<void>;
  close(): Promise<void>;
}

/** Thrown by `publish` for a topic that does not exist (the caller may create it and try again). */
export class UnknownTopicError extends Error {
  readonly topic: string;
  constructor(topic: string, options?: ErrorOptions) {
    super(`the topic ${topic} does not exist on the stream`, options);
    this.name = 'UnknownTopicError';
    this.topic = topic;
  }
}

/** Thrown by `publish` for a record the stream refuses for its size. */
export class RecordTooLargeError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'RecordTooLargeError';
  }
}
