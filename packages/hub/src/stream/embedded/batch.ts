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
  /** Records of the same partition in earlier chunks. */
  readonly before: number;
  readonly records: PlacedRecord[];
  bytes: number;
  timestamp_ms: number;
}

/** What one transaction appends. */
export interface Batch {
  /** `${topic_id}/${partition}` of every partition touched. */
  readonly partitions: readonly string[];
  /** The parameters of stream_append after `sender`. */
  readonly parameters: readonly unknown[];
  /** Per call, one position per record, given the first offset of each chunk. */
  positions(first_offsets: readonly number[]): readonly (readonly RecordPosition[])[];
}

/** Cuts the records of several calls into chunks per partition and packs them into one buffer. */
export function packBatch(calls: readonly (readonly PlacedRecord[])[]): Batch {
  const chunks: Chunk[] = [];
  const open = new Map<string, number>();
  const counts = new Map<string, number>();
  /** Per call and record: its chunk and its place in it. */
  const places = calls.map((records) =>
    records.map((record) => {
      const partition = `${record.topic_id}/${record.partition}`;
      const index = chunkFor(partition, record);
      const chunk = chunks[index] as Chunk;
      chunk.records.push(record);
      chunk.bytes += record.bytes;
      chunk.timestamp_ms = Math.max(chunk.timestamp_ms, record.timestamp_ms);
      counts.set(partition, (counts.get(partition) ?? 0) + 1);
      return { index, nth: chunk.records.length - 1, record };
    }),
  );

  function chunkFor(partition: string, record: PlacedRecord): number {
    const last = open.get(partition);
    if (last !== undefined && (chunks[last]?.bytes ?? 0) + record.bytes <= chunk_bytes_max)
      return last;
    chunks.push({
      topic_id: record.topic_id,
      partition: record.partition,
      before: counts.get(partition) ?? 0,
      records: [],
      bytes: chunk_header_bytes,
      timestamp_ms: record.timestamp_ms,
    });
    open.set(partition, chunks.length - 1);
    return chunks.length - 1;
  }

  return {
    partitions: [...counts.keys()],
    parameters: parameters(chunks),
    positions: (first_offsets) =>
      places.map((records) =>
        records.map(({ index, nth, record }) => ({
          topic: record.record.topic,
          partition: record.partition,
          offset: (first_offsets[index] as number) + nth,
        })),
      ),
  };
}

/** One binary parameter for all bytes; the other columns as arrays. */
function parameters(chunks: readonly Chunk[]): unknown[] {
  const blob = Buffer.allocUnsafe(chunks.reduce((sum, chunk) => sum + chunk.bytes, 0));
  const starts: number[] = [];
  let at = 0;
  for (const chunk of chunks) {
    starts.push(at + 1);
    at = packChunkHeader(blob, at);
    for (const { record, bytes, timestamp_ms } of chunk.records) {
      at = packRecord(record, bytes, timestamp_ms, blob, at);
    }
  }
  return [
    integers(chunks.map((chunk) => chunk.topic_id)),
    integers(chunks.map((chunk) => chunk.partition)),
    integers(chunks.map((chunk) => chunk.records.length)),
    integers(chunks.map((chunk) => chunk.before)),
    integers(chunks.map((chunk) => Math.floor(chunk.timestamp_ms))),
    integers(starts),
    integers(chunks.map((chunk) => chunk.bytes)),
    blob,
  ];
}

/** An array of integers as Postgres reads it; cheaper than leaving it to the client library. */
export function integers(values: readonly number[]): string {
  return `{${values.join()}}`;
}
