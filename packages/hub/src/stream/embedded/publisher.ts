import type pg from 'pg';
import { type OutgoingRecord, type RecordPosition, RecordTooLargeError } from '../port.ts';
import { type AppendedChunk, type Batch, type PlacedRecord, packBatch } from './batch.ts';
import { chooser } from './choose.ts';
import { packedBytes } from './codec.ts';
import { ensureDays } from './days.ts';
import type { TopicInfo, Topics } from './topics.ts';

/** Records and bytes that wait for their transaction, in this process. */
const queued_bytes_max = 256 * 1024 * 1024;
/** What one transaction takes on, unless a single call is larger. */
const transaction_bytes_max = 4 * 1024 * 1024;
const transaction_records_max = 5000;
/** Packed size of one call: one parameter of Postgres holds less than 1 GiB. */
const call_bytes_max = 128 * 1024 * 1024;
const no_partition_for_row = '23514';

interface Call {
  readonly records: readonly PlacedRecord[];
  readonly bytes: number;
  resolve(positions: readonly RecordPosition[]): void;
  reject(error: unknown): void;
}

export interface Publisher {
  publish(records: readonly OutgoingRecord[]): Promise<readonly RecordPosition[]>;
  /** Refuses new calls, waits for those under way. */
  close(): Promise<void>;
}

/**
 * Appends by group commit: while one transaction is in flight, calls gather and share the next
 * one. A call is never split over transactions.
 */
export function createPublisher(
  pool: pg.Pool,
  topics: Topics,
  options: {
    sender: string;
    record_bytes_max: number;
    appended: (chunks: readonly AppendedChunk[]) => void;
  },
): Publisher {
  const choosePartition = chooser();
  let queue: Call[] = [];
  let queued_bytes = 0;
  let running: Promise<void> | undefined;
  let closed = false;

  async function learnTopics(records: readonly OutgoingRecord[]): Promise<void> {
    const unknown = new Set(
      records.map((record) => record.topic).filter((name) => !topics.known(name)),
    );
    for (const name of unknown) await topics.byName(name);
  }

  function place(records: readonly OutgoingRecord[]): PlacedRecord[] {
    const now_ms = Date.now();
    const placed: PlacedRecord[] = [];
    choosePartition.nextCall();
    for (const record of records) {
      const topic = topics.known(record.topic) as TopicInfo;
      const bytes = packedBytes(record);
      if (bytes > options.record_bytes_max) {
        throw new RecordTooLargeError(
          `a record for ${record.topic} has ${bytes} bytes, more than the ${options.record_bytes_max} the stream takes`,
        );
      }
      const partition = choosePartition.for(record, topic.partitions);
      placed.push({
        record,
        topic_id: topic.id,
        partition,
        bytes,
        timestamp_ms: record.timestamp_ms ?? now_ms,
      });
    }
    return placed;
  }

  function takeCalls(): Call[] {
    let bytes = 0;
    let records = 0;
    let count = 0;
    for (const call of queue) {
      bytes += call.bytes;
      records += call.records.length;
      if (count > 0 && (bytes > transaction_bytes_max || records > transaction_records_max)) break;
      count++;
    }
    const taken = queue.slice(0, count);
    queue = queue.slice(count);
    return taken;
  }

  async function drain(): Promise<void> {
    while (queue.length > 0) {
      const calls = takeCalls();
      try {
        const batch = packBatch(calls.map((call) => call.records));
        const first_offsets = await append(pool, options.sender, batch);
        const positions = batch.positions(first_offsets);
        options.appended(batch.appended(first_offsets));
        for (const [at, call] of calls.entries()) call.resolve(positions[at] ?? []);
      } catch (error) {
        for (const call of calls) call.reject(error);
      }
      for (const call of calls) queued_bytes -= call.bytes;
    }
    running = undefined;
  }

  return {
    async publish(records) {
      if (closed) throw new Error('the stream is closed');
      if (records.length === 0) return [];
      await learnTopics(records);
      const placed = place(records);
      const bytes = placed.reduce((sum, record) => sum + record.bytes, 0);
      if (bytes > call_bytes_max) {
        throw new RecordTooLargeError(
          `one publish call has ${bytes} bytes, more than ${call_bytes_max}`,
        );
      }
      if (queued_bytes + bytes > queued_bytes_max) {
        throw new Error(`more than ${queued_bytes_max} bytes wait to be appended; publish slower`);
      }
      return new Promise((resolve, reject) => {
        queue.push({ records: placed, bytes, resolve, reject });
        queued_bytes += bytes;
        // A microtask later: calls made in one go share the first transaction as well.
        running ??= Promise.resolve().then(drain);
      });
    },
    async close() {
      closed = true;
      await running;
    },
  };
}

/** Appends the chunks in one transaction; gives the first offset of each chunk. */
async function append(pool: pg.Pool, sender: string, batch: Batch): Promise<readonly number[]> {
  const run = () =>
    pool.query<{ offset_first: number }>({
      name: 'stream_append',
      text: /* sql */ `select offset_first from stream_append($1, $2, $3, $4, $5, $6, $7, $8) offset_first`,
      values: [sender, ...batch.parameters],
    });
  try {
    return offsets(await run());
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === no_partition_for_row))
      throw error;
    await ensureDays(pool);
    return offsets(await run());
  }
}

function offsets(result: pg.QueryResult<{ offset_first: number }>): readonly number[] {
  return result.rows.map((row) => row.offset_first);
}
