/**
 * One assigned partition: what has been fetched and not yet handled, and the one batch that is
 * being handled. Created at assignment; ended for good when the partition is revoked or lost (a
 * later assignment gets a new worker).
 *
 * States: loading (its position is being looked up) → open → ended.
 */
import { backoff_ms, wait } from '../../base/index.ts';
import type { PartitionBatch, StreamRecord, TopicPartition } from '../port.ts';
import type { DecodedRecords } from './decode.ts';
import { fault } from './errors.ts';
import type { MemoryBudget } from './memory-budget.ts';
import { partitionKey } from './partition-key.ts';

export interface WorkerOptions {
  readonly batch_records_max: number;
  readonly batch_bytes_max: number;
  readonly budget: MemoryBudget;
  onBatch(batch: PartitionBatch): Promise<number>;
  /** A batch is done: `offset` may be committed. */
  onSettled(worker: PartitionWorker, offset: number): void;
  /** Room in the buffer: fetching may go on. */
  onRoom(): void;
  onFault(fault: Error): void;
}

const RETRY_base_ms = 50;
const RETRY_max_ms = 10_000;
/** A batch that runs longer is reported, again and again: heartbeats alone would hide it. */
const STALL_ms = 60_000;

export class PartitionWorker {
  readonly source: TopicPartition;
  readonly key: string;
  readonly #options: WorkerOptions;
  readonly #end = new AbortController();
  #buffer: StreamRecord[] = [];
  #buffer_bytes = 0;
  #fetch_offset = -1;
  #position = -1;
  #running: Promise<void> | null = null;

  constructor(source: TopicPartition, options: WorkerOptions) {
    this.source = source;
    this.key = partitionKey(source);
    this.#options = options;
  }

  get signal(): AbortSignal {
    return this.#end.signal;
  }

  /** Next offset to hand to the handler; -1 while loading. */
  get position(): number {
    return this.#position;
  }

  /** Next offset to ask the broker for. */
  get fetch_offset(): number {
    return this.#fetch_offset;
  }

  get buffered_bytes(): number {
    return this.#buffer_bytes;
  }

  get idle(): boolean {
    return this.#running === null && this.#buffer.length === 0;
  }

  get open(): boolean {
    return this.#fetch_offset >= 0 && !this.#end.signal.aborted;
  }

  /** Starts, or starts again elsewhere: forgets what is buffered. */
  seek(offset: number): void {
    this.#drop();
    this.#position = offset;
    this.#fetch_offset = offset;
    this.#options.onRoom();
  }

  /** Takes what was fetched from `from_offset`; an answer to an outdated question is ignored. */
  take(from_offset: number, fetched: DecodedRecords): void {
    if (!this.open || from_offset !== this.#fetch_offset) return;
    this.#fetch_offset = fetched.next_offset;
    if (fetched.records.length === 0) {
      // Only control records or holes left by compaction: nothing to hand out, yet read.
      if (this.idle) this.#position = fetched.next_offset;
      return;
    }
    this.#buffer =
      this.#buffer.length === 0 ? fetched.records : this.#buffer.concat(fetched.records);
    this.#buffer_bytes += fetched.bytes;
    this.#options.budget.add(fetched.bytes);
    this.#running ??= this.#run();
  }

  /** Aborts the running batch and takes no more. `settled()` then says when it has ended. */
  end(): void {
    this.#end.abort();
    this.#drop();
  }

  async settled(): Promise<void> {
    await this.#running;
  }

  #drop(): void {
    this.#options.budget.remove(this.#buffer_bytes);
    this.#buffer = [];
    this.#buffer_bytes = 0;
  }

  async #run(): Promise<void> {
    while (this.#buffer.length > 0 && !this.#end.signal.aborted) {
      const { records, bytes } = this.#cut();
      try {
        const next = await this.#handle(records);
        if (next === null) break;
        this.#advance(records, next);
      } finally {
        this.#options.budget.remove(bytes);
        this.#options.onRoom();
      }
    }
    this.#running = null;
    if (!this.#end.signal.aborted && this.#buffer.length === 0) this.#position = this.#fetch_offset;
  }

  /** The next batch. Its bytes stay in the budget until it is settled. */
  #cut(): { records: StreamRecord[]; bytes: number } {
    const { batch_records_max, batch_bytes_max } = this.#options;
    const buffer = this.#buffer;
    const limit = Math.min(buffer.length, batch_records_max);
    let count = 0;
    let bytes = 0;
    while (count < limit) {
      const size = recordSize(buffer[count] as StreamRecord);
      if (count > 0 && bytes + size > batch_bytes_max) break;
      bytes += size;
      count += 1;
    }
    const records = count === buffer.length ? buffer : buffer.slice(0, count);
    this.#buffer = count === buffer.length ? [] : buffer.slice(count);
    // The buffer counts bytes as they were on the wire: take a share, and all with the last record.
    const share =
      this.#buffer.length === 0 ? this.#buffer_bytes : Math.min(bytes, this.#buffer_bytes);
    this.#buffer_bytes -= share;
    return { records, bytes: share };
  }

  /** The handler's answer; null when the partition ended before there was one. */
  async #handle(records: readonly StreamRecord[]): Promise<number | null> {
    const { signal } = this.#end;
    const { topic, partition } = this.source;
    const options = this.#options;
    for (let failures = 0; !signal.aborted; failures += 1) {
      const stalled = setInterval(() => {
        options.onFault(fault(`a batch of ${this.key} has been running for very long`, null));
      }, STALL_ms);
      try {
        const next = await options.onBatch({ topic, partition, records, signal });
        if (!Number.isSafeInteger(next) || next < 0) {
          throw new Error(`the handler answered with ${next}, which is not an offset`);
        }
        return next;
      } catch (error) {
        if (signal.aborted) return null;
        options.onFault(fault(`a batch of ${this.key} failed, it will be tried again`, error));
      } finally {
        clearInterval(stalled);
      }
      await wait(backoff_ms(failures, RETRY_base_ms, RETRY_max_ms), signal);
    }
    return null;
  }

  #advance(records: readonly StreamRecord[], next: number): void {
    const last = records[records.length - 1] as StreamRecord;
    const first = records[0] as StreamRecord;
    this.#options.onSettled(this, next);
    if (this.#end.signal.aborted) return;
    this.#position = next;
    if (next === last.offset + 1) return;
    const following = this.#buffer[0]?.offset ?? this.#fetch_offset;
    if (next > last.offset && next <= following) return; // a hole, or exactly the next record
    if (next > first.offset && next <= last.offset) {
      // Part of the batch is done: the rest is at hand still.
      const rest = records.filter((record) => record.offset >= next);
      const bytes = rest.reduce((sum, record) => sum + recordSize(record), 0);
      this.#buffer = rest.concat(this.#buffer);
      this.#buffer_bytes += bytes;
      this.#options.budget.add(bytes);
      return;
    }
    this.seek(next);
  }
}

function recordSize(record: StreamRecord): number {
  let bytes = 16 + (record.key?.length ?? 0) + (record.value?.length ?? 0);
  for (const [key, value] of record.headers) bytes += 4 + key.length + value.length;
  return bytes;
}
