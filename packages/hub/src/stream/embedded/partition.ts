import { backoff_ms, wait } from '../../base/index.ts';
import type { ConsumeOptions, StreamRecord } from '../port.ts';
import { packedBytes, unpackChunk } from './codec.ts';
import type { Owned } from './group.ts';

const retry_base_ms = 50;
const retry_max_ms = 5000;
/** Batches held per partition: the one that runs and the one that comes next. */
const ahead = 2;

/** A chunk as read from the log. */
export interface ReadChunk {
  readonly first_offset: number;
  readonly day: number;
  readonly records: Buffer;
}

/** What a partition tells its consumer. */
export interface PartitionHooks {
  /** Memory taken (positive) or given back (negative), in bytes. */
  buffered(bytes: number): void;
  /** There may be room for more records now. */
  hungry(partition: AssignedPartition): void;
  /** The next offset to be handled has changed. */
  moved(partition: AssignedPartition): void;
}

/** A partition while it belongs to this member: its buffer, and the loop that hands out batches. */
export interface AssignedPartition extends Owned {
  readonly topic: string;
  readonly signal: AbortSignal;
  /** Next offset to be handled, or null before the start is known. */
  position(): number | null;
  begin(offset: number): void;
  /** From where to read on, or null when nothing can be taken now. `epoch` changes when the place jumps. */
  wants(): { offset: number; day: number; epoch: number } | null;
  take(chunk: ReadChunk, epoch: number): void;
  /** Aborts the signal, hands out nothing more. Resolves when the running batch has ended. */
  stop(): Promise<void>;
}

export function createPartition(
  owned: Owned & { topic: string },
  options: ConsumeOptions,
  hooks: PartitionHooks,
): AssignedPartition {
  const { topic, topic_id, partition, generation } = owned;
  const stopping = new AbortController();
  const signal = stopping.signal;
  let buffer: { record: StreamRecord; bytes: number }[] = [];
  let buffer_bytes = 0;
  let handled: number | null = null;
  let fetch_offset = 0;
  let day = 0;
  let epoch = 0;
  let wakeWorker: () => void = () => {};
  let working: Promise<void> | undefined;

  function drop(count: number): void {
    const dropped = buffer.splice(0, count);
    const bytes = dropped.reduce((sum, entry) => sum + entry.bytes, 0);
    buffer_bytes -= bytes;
    hooks.buffered(-bytes);
  }

  function nextBatch(): StreamRecord[] {
    const records: StreamRecord[] = [];
    let bytes = 0;
    for (const entry of buffer) {
      bytes += entry.record.value?.length ?? 0;
      if (records.length > 0 && bytes > options.batch_bytes_max) break;
      if (records.length === options.batch_records_max) break;
      records.push(entry.record);
    }
    return records;
  }

  /** Goes on at `next`: inside the buffer by dropping what lies before, elsewhere by reading anew. */
  function goOn(next: number): void {
    handled = next;
    const first = buffer[0]?.record.offset ?? fetch_offset;
    if (next >= first && next <= fetch_offset) {
      const keep = buffer.findIndex((entry) => entry.record.offset >= next);
      drop(keep < 0 ? buffer.length : keep);
    } else {
      drop(buffer.length);
      epoch++;
      fetch_offset = next;
      day = 0;
    }
    hooks.moved(api);
    hooks.hungry(api);
  }

  async function work(): Promise<void> {
    let failures = 0;
    let records: StreamRecord[] = [];
    while (!signal.aborted) {
      if (records.length === 0) records = nextBatch();
      if (records.length === 0) {
        await new Promise<void>((resolve) => {
          wakeWorker = resolve;
        });
        continue;
      }
      try {
        goOn(checkOffset(await options.onBatch({ topic, partition, records, signal })));
        failures = 0;
        records = [];
      } catch (error) {
        if (signal.aborted) break;
        const message = `handling records of ${topic}/${partition} failed; trying again`;
        options.onFault(new Error(message, { cause: error }));
        await wait(backoff_ms(failures++, retry_base_ms, retry_max_ms), signal);
      }
    }
    drop(buffer.length);
  }

  const api: AssignedPartition = {
    topic,
    topic_id,
    partition,
    generation,
    signal,
    position: () => handled,
    begin(offset) {
      if (signal.aborted || working) return;
      handled = offset;
      fetch_offset = offset;
      working = work();
      hooks.hungry(api);
    },
    wants() {
      if (!working || signal.aborted) return null;
      if (buffer_bytes >= ahead * options.batch_bytes_max) return null;
      if (buffer.length >= ahead * options.batch_records_max) return null;
      return { offset: fetch_offset, day, epoch };
    },
    take(chunk, of_epoch) {
      if (signal.aborted || of_epoch !== epoch) return;
      const records = unpackChunk(
        chunk.records,
        { topic, partition },
        chunk.first_offset,
        fetch_offset,
      );
      for (const record of records) {
        const bytes = packedBytes(record);
        buffer.push({ record, bytes });
        buffer_bytes += bytes;
        hooks.buffered(bytes);
        fetch_offset = record.offset + 1;
      }
      day = chunk.day;
      wakeWorker();
    },
    async stop() {
      stopping.abort();
      wakeWorker();
      await working;
    },
  };
  return api;
}

function checkOffset(next: number): number {
  if (Number.isSafeInteger(next) && next >= 0) return next;
  throw new RangeError(`onBatch has to resolve with the next offset, not ${next}`);
}
