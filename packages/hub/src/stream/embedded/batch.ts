import type { OutgoingRecord, RecordPosition } from '../port.ts';
import { chunk_header_bytes, packChunkHeader, packRecord } from './codec.ts';

/** A chunk of several records stays within one page of Postgres (8 KiB), row header and index columns included. */
const chunk_bytes_max = 8000;

export interface PlacedRecord {
  readonly record: OutgoingRecord;
  readonly topic_id: number;
  readonly partition: number;
  /** Packed size. */
  readonly bytes: number;
  readonly timestamp_ms: number;
}

interface Chunk {
  readonly topic_id: number;
  readonly partition: number;
  readonly records: PlacedRecord[];
  bytes: number;
  timestamp_ms: number;
}

/** A chunk that has been appended. */
export interface AppendedChunk {
  readonly topic_id: number;
  readonly partition: number;
  readonly first_offset: number;
  readonly records: Buffer;
}

/** What one transaction appends. */
export interface Batch {
  /** The parameters of stream_append after `sender`. */
  readonly parameters: readonly unknown[];
  /** Per call, one position per record, given the first offset of each chunk. */
  positions(first_offsets: readonly number[]): readonly (readonly RecordPosition[])[];
  appended(first_offsets: readonly number[]): readonly AppendedChunk[];
}

/** Cuts the records of several calls into chunks per partition and packs them into one buffer. */
export function packBatch(calls: readonly (readonly PlacedRecord[])[]): Batch {
  const open = new Map<string, Chunk>();
  const all: Chunk[] = [];

  function chunkFor(record: PlacedRecord): Chunk {
    const key = `${record.topic_id}/${record.partition}`;
    const last = open.get(key);
    if (last !== undefined && last.bytes + record.bytes <= chunk_bytes_max) return last;
    const { topic_id, partition, timestamp_ms } = record;
    const chunk = { topic_id, partition, records: [], bytes: chunk_header_bytes, timestamp_ms };
    open.set(key, chunk);
    all.push(chunk);
    return chunk;
  }

  const places = calls.map((records) =>
    records.map((record) => {
      const chunk = chunkFor(record);
      chunk.records.push(record);
      chunk.bytes += record.bytes;
      chunk.timestamp_ms = Math.max(chunk.timestamp_ms, record.timestamp_ms);
      return { chunk, nth: chunk.records.length - 1, record };
    }),
  );
  // The order in which everybody locks. The sort is stable: chunks of a partition keep theirs.
  const chunks = all.sort((a, b) => a.topic_id - b.topic_id || a.partition - b.partition);
  const indexes = new Map(chunks.map((chunk, index) => [chunk, index]));
  const { blob, starts } = packChunks(chunks);

  return {
    parameters: [...columns(chunks, starts), blob],
    positions: (first_offsets) =>
      places.map((records) =>
        records.map(({ chunk, nth, record }) => ({
          topic: record.record.topic,
          partition: record.partition,
          offset: (first_offsets[indexes.get(chunk) as number] as number) + nth,
        })),
      ),
    appended: (first_offsets) =>
      chunks.map(({ topic_id, partition, bytes }, index) => {
        const start = starts[index] as number;
        const records = blob.subarray(start, start + bytes);
        return { topic_id, partition, first_offset: first_offsets[index] as number, records };
      }),
  };
}

function packChunks(chunks: readonly Chunk[]): { blob: Buffer; starts: number[] } {
  const blob = Buffer.allocUnsafeSlow(chunks.reduce((sum, chunk) => sum + chunk.bytes, 0));
  const starts: number[] = [];
  let at = 0;
  for (const chunk of chunks) {
    starts.push(at);
    at = packChunkHeader(blob, at);
    for (const { record, bytes, timestamp_ms } of chunk.records) {
      at = packRecord(record, bytes, timestamp_ms, blob, at);
    }
  }
  return { blob, starts };
}

function columns(chunks: readonly Chunk[], starts: readonly number[]): string[] {
  return [
    integers(chunks.map((chunk) => chunk.topic_id)),
    integers(chunks.map((chunk) => chunk.partition)),
    integers(chunks.map((chunk) => chunk.records.length)),
    integers(chunks.map((chunk) => Math.floor(chunk.timestamp_ms))),
    integers(starts.map((start) => start + 1)),
    integers(chunks.map((chunk) => chunk.bytes)),
  ];
}

/** An array of integers as Postgres reads it; cheaper than leaving it to the client library. */
export function integers(values: readonly number[]): string {
  return `{${values.join()}}`;
}
