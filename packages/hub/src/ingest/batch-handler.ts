import type { ContractRules } from '@streaming-hub/contract';
import type pg from 'pg';
import type { Clock } from '../base/index.ts';
import type { PartitionBatch, StreamRecord, TopicPartition } from '../stream/index.ts';
import { partitionKey, readPositions } from './positions.ts';
import { classify } from './refusal.ts';
import { type SortedBatch, sortRecords } from './sort.ts';
import { type BatchRange, writeBatch } from './statement.ts';
import type { IngestLimits, IngestLog, IngestMetrics } from './types.ts';

/** After a duplicate, this many batches are written by the way that is cheaper when there are more. */
const careful_batches = 64;

export interface BatchHandlerParts {
  readonly pool: pg.Pool;
  readonly rules: ContractRules;
  readonly metrics: IngestMetrics;
  readonly log: IngestLog;
  readonly clock: Clock;
  readonly limits: IngestLimits;
  readonly gate: (signal: AbortSignal) => Promise<void>;
  readonly onDeliveries: () => void;
}

export interface BatchHandler {
  readonly loadPositions: (
    partitions: readonly TopicPartition[],
  ) => Promise<ReadonlyMap<string, number>>;
  readonly onBatch: (batch: PartitionBatch) => Promise<number>;
}

/**
 * Turns batches of the stream into ingest transactions. It remembers the position that the
 * database had last for each partition; that is what the next batch is fenced by.
 */
export function createBatchHandler(parts: BatchHandlerParts): BatchHandler {
  const { pool, rules, metrics, log, clock, limits } = parts;
  const positions = new Map<string, number>();
  /** Partitions whose consumer has been told the database's position because it was behind. */
  const sentBack = new Map<string, number>();
  let carefulBatches = 0;

  async function loadPositions(
    partitions: readonly TopicPartition[],
  ): Promise<ReadonlyMap<string, number>> {
    const stored = await readPositions(pool, partitions);
    for (const partition of partitions) {
      const key = partitionKey(partition);
      const position = stored.get(key);
      sentBack.delete(key);
      if (position === undefined) positions.delete(key);
      else positions.set(key, position);
    }
    return stored;
  }

  async function onBatch(batch: PartitionBatch): Promise<number> {
    await orAborted(parts.gate(batch.signal), batch.signal);
    batch.signal.throwIfAborted();
    const key = partitionKey(batch);
    const first = batch.records[0];
    if (first === undefined) throw new Error(`an empty batch of ${key}`);
    const expected = positions.get(key) ?? first.offset;
    const records = unread(batch, key, expected);
    if (records.length === 0) return expected;
    return await store(batch, key, records, (records.at(-1)?.offset ?? 0) + 1, expected);
  }

  /**
   * Records at and after the stored position. A stream that comes back to an earlier offset after
   * it has been sent to the stored position does not have that position any more (the topic was
   * made anew): then its records are taken as they are, and deduplication is what protects.
   */
  function unread(batch: PartitionBatch, key: string, expected: number): readonly StreamRecord[] {
    const records = batch.records.filter((record) => record.offset >= expected);
    if (records.length > 0) {
      sentBack.delete(key);
      return records;
    }
    if (sentBack.get(key) !== expected) {
      sentBack.set(key, expected);
      metrics.faults.inc(1);
      return records;
    }
    log.warn(
      {
        topic: batch.topic,
        partition: batch.partition,
        stored_offset: expected,
        offset: batch.records[0]?.offset,
      },
      'the stream no longer reaches the stored position; starting over from what it has',
    );
    return batch.records;
  }

  /** Resolves with the position that the database has afterwards. */
  async function store(
    partition: TopicPartition,
    key: string,
    records: readonly StreamRecord[],
    next_offset: number,
    expected_offset: number,
  ): Promise<number> {
    const range = {
      topic: partition.topic,
      partition: partition.partition,
      expected_offset,
      next_offset,
    };
    const sorted = sortRecords(records, rules, clock.now_ms());
    try {
      return await write(range, key, sorted);
    } catch (error) {
      if (classify(error) !== 'content') throw error;
      return await isolate(range, key, records, error);
    }
  }

  /** Halves the batch until the record is alone that the database refuses. */
  async function isolate(
    range: BatchRange,
    key: string,
    records: readonly StreamRecord[],
    error: unknown,
  ): Promise<number> {
    const middle = records.length >> 1;
    const second = records[middle];
    if (second === undefined) throw error;
    if (middle === 0) return await setAside(range, key, second, error);
    const position = await store(
      range,
      key,
      records.slice(0, middle),
      second.offset,
      range.expected_offset,
    );
    if (position !== second.offset) return position;
    return await store(range, key, records.slice(middle), range.next_offset, position);
  }

  /** Quarantines what passed every check and was refused by the database all the same. */
  async function setAside(
    range: BatchRange,
    key: string,
    record: StreamRecord,
    cause: unknown,
  ): Promise<number> {
    const detail = cause instanceof Error ? cause.message : 'refused by the database';
    log.error(
      { err: cause, topic: range.topic, partition: range.partition, offset: record.offset },
      'record refused by the database',
    );
    const quarantined = [{ record, reason: 'storage_refused', detail }];
    return await write(range, key, { events: [], quarantined, drops: new Map() });
  }

  async function write(range: BatchRange, key: string, sorted: SortedBatch): Promise<number> {
    const started_ms = clock.monotonic_ms();
    const result = await writeBatch(pool, range, sorted, {
      timeout_ms: limits.statement_timeout_ms,
      careful: carefulBatches > 0,
    });
    positions.set(key, result.position);
    if (!result.applied) {
      metrics.faults.inc(1);
      log.warn(
        { ...range, stored_offset: result.position },
        'another position is stored; going on there',
      );
      return result.position;
    }
    if (result.deliveries > 0) parts.onDeliveries();
    metrics.batchSeconds.observe((clock.monotonic_ms() - started_ms) / 1000);
    const duplicates = sorted.events.length - result.stored;
    carefulBatches = duplicates > 0 ? careful_batches : Math.max(0, carefulBatches - 1);
    count(sorted, result.stored, duplicates);
    return result.position;
  }

  function count(sorted: SortedBatch, stored: number, duplicates: number): void {
    const add = (verdict: 'accept' | 'drop' | 'quarantine', reason: string, amount: number) => {
      if (amount > 0) metrics.records.inc({ verdict, reason }, amount);
    };
    add('accept', '', stored);
    add('drop', 'duplicate', duplicates);
    if (stored > 0) metrics.eventsStored.inc(stored);
    if (duplicates > 0) metrics.duplicates.inc(duplicates);
    for (const [reason, amount] of sorted.drops) add('drop', reason, amount);
    for (const [reason, records] of Map.groupBy(sorted.quarantined, (item) => item.reason)) {
      add('quarantine', reason, records.length);
    }
  }

  return { loadPositions, onBatch };
}

/** A gate may know nothing of the signal; a partition that is taken away does not wait for it. */
async function orAborted(gate: Promise<void>, signal: AbortSignal): Promise<void> {
  const aborted = Promise.withResolvers<void>();
  const abort = () => aborted.resolve();
  signal.addEventListener('abort', abort, { once: true });
  if (signal.aborted) abort();
  try {
    await Promise.race([gate, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
