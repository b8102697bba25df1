/**
 * How records are packed into one chunk. All numbers are little-endian.
 *
 *   chunk  = version u8 · record*
 *   record = size u32 (of what follows) · timestamp f64 (ms) · key · value · header count u32 · (key · value)*
 *   bytes  = length i32 (-1 = null) · bytes
 */
import type { OutgoingRecord, RawHeader, StreamRecord, TopicPartition } from '../port.ts';

const version = 1;
export const chunk_header_bytes = 1;
const record_fixed_bytes = 4 + 8 + 4 + 4 + 4;
const header_fixed_bytes = 8;

/** Bytes that a record takes in a chunk. */
export function packedBytes(record: OutgoingRecord): number {
  let bytes = record_fixed_bytes + (record.key?.length ?? 0) + (record.value?.length ?? 0);
  for (const [key, value] of record.headers)
    bytes += header_fixed_bytes + key.length + value.length;
  return bytes;
}

/** Writes the start of a chunk at `at`; returns the place after it. */
export function packChunkHeader(into: Buffer, at: number): number {
  return into.writeUInt8(version, at);
}

/** Writes a record of `size` = packedBytes(record) at `at`; returns the place after it. */
export function packRecord(
  record: OutgoingRecord,
  size: number,
  timestamp_ms: number,
  into: Buffer,
  at: number,
): number {
  let next = into.writeUInt32LE(size - 4, at);
  next = into.writeDoubleLE(timestamp_ms, next);
  next = packBytes(record.key, into, next);
  next = packBytes(record.value, into, next);
  next = into.writeUInt32LE(record.headers.length, next);
  for (const [key, value] of record.headers) {
    next = packBytes(key, into, next);
    next = packBytes(value, into, next);
  }
  return next;
}

function packBytes(bytes: Buffer | null, into: Buffer, at: number): number {
  if (bytes === null) return into.writeInt32LE(-1, at);
  const next = into.writeInt32LE(bytes.length, at);
  return next + bytes.copy(into, next);
}

/**
 * Reads the records of a chunk whose first one has the offset `first_offset`, leaving out those
 * below `from_offset`. Keys, values and headers are views into the chunk.
 * @throws Error when the chunk is not one that this version wrote
 */
export function unpackChunk(
  chunk: Buffer,
  place: TopicPartition,
  first_offset: number,
  from_offset: number,
): StreamRecord[] {
  const { topic, partition } = place;
  if (chunk[0] !== version) {
    throw new Error(
      `the stream holds a chunk of an unknown version at ${topic}/${partition}, offset ${first_offset}`,
    );
  }
  const records: StreamRecord[] = [];
  let at = chunk_header_bytes;
  for (let offset = first_offset; at < chunk.length; offset++) {
    const end = at + 4 + chunk.readUInt32LE(at);
    if (offset >= from_offset) records.push(unpackRecord(chunk, at + 4, topic, partition, offset));
    at = end;
  }
  return records;
}

function unpackRecord(
  chunk: Buffer,
  start: number,
  topic: string,
  partition: number,
  offset: number,
): StreamRecord {
  let at = start + 8;
  const bytes = (): Buffer | null => {
    const length = chunk.readInt32LE(at);
    at += 4;
    if (length < 0) return null;
    at += length;
    return chunk.subarray(at - length, at);
  };
  const timestamp_ms = chunk.readDoubleLE(start);
  const key = bytes();
  const value = bytes();
  const count = chunk.readUInt32LE(at);
  at += 4;
  const headers: RawHeader[] = [];
  for (let n = 0; n < count; n++) headers.push([bytes() as Buffer, bytes() as Buffer]);
  return { topic, partition, offset, timestamp_ms, key, value, headers };
}
