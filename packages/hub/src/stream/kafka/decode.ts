/**
 * Fetch answers and record batches as a consumer reads them. Own code because the client's decoder
 * spends most of its time on big integers, and hands out the records of an aborted transaction when
 * the end of that transaction lies beyond the answer.
 */
import { compressionsAlgorithmsByBitmask } from '@platformatic/kafka';
import type { RawHeader, StreamRecord } from '../port.ts';
import { ByteReader } from './varint.ts';

export interface AbortedTransaction {
  readonly producer_id: number;
  readonly first_offset: number;
}

export interface FetchedPartition {
  readonly topic: string;
  readonly partition: number;
  readonly error_code: number;
  readonly aborted: readonly AbortedTransaction[];
  readonly records: Buffer | null;
}

export interface FetchAnswer {
  readonly error_code: number;
  readonly partitions: readonly FetchedPartition[];
}

/** Decodes the body of a Fetch answer, version 12. */
export function decodeFetchAnswer(body: Buffer): FetchAnswer {
  const reader = new ByteReader(body);
  reader.int32(); // throttle time
  const error_code = reader.int16();
  reader.int32(); // session
  const partitions: FetchedPartition[] = [];
  for (let topics = reader.compactLength(); topics > 0; topics -= 1) {
    const topic = reader.compactString();
    for (let count = reader.compactLength(); count > 0; count -= 1) {
      partitions.push(decodePartition(reader, topic));
    }
    reader.skipTags();
  }
  return { error_code, partitions };
}

function decodePartition(reader: ByteReader, topic: string): FetchedPartition {
  const partition = reader.int32();
  const error_code = reader.int16();
  reader.int64(); // high watermark
  reader.int64(); // last stable offset
  reader.int64(); // log start
  const aborted: AbortedTransaction[] = [];
  for (let count = reader.compactLength(); count > 0; count -= 1) {
    aborted.push({ producer_id: reader.int64(), first_offset: reader.int64() });
    reader.skipTags();
  }
  reader.int32(); // preferred read replica
  const size = reader.unsigned() - 1;
  const records = size > 0 ? reader.take(size) : null;
  reader.skipTags();
  return { topic, partition, error_code, aborted, records };
}

export interface DecodedRecords {
  readonly records: StreamRecord[];
  /** Sizes of the records' keys, values and headers, in the same order. */
  readonly bytes: number;
  /** Where to fetch next: behind the last whole batch, also where that held nothing for us. */
  readonly next_offset: number;
}

const HEAD_bytes = 61;
const CODEC = 0b111;
const LOG_APPEND_TIME = 1 << 3;
const TRANSACTIONAL = 1 << 4;
const CONTROL = 1 << 5;
const NOTHING = Buffer.alloc(0);

/** Every record from `from_offset` on; control records and those of aborted transactions are left out. */
export function decodeRecords(
  source: { readonly topic: string; readonly partition: number },
  bytes: Buffer,
  from_offset: number,
  aborted: readonly AbortedTransaction[],
): DecodedRecords {
  const reader = new ByteReader(bytes);
  const out: StreamRecord[] = [];
  const pending = [...aborted].sort((a, b) => a.first_offset - b.first_offset);
  const inAborted = new Set<number>();
  let next_offset = from_offset;
  let size = 0;
  while (reader.remaining >= HEAD_bytes) {
    const start = reader.position;
    const base_offset = reader.int64();
    const length = reader.int32();
    if (bytes.length - start < 12 + length) break; // cut off by the byte limit
    const head = readHead(reader, base_offset);
    while (pending[0] !== undefined && pending[0].first_offset <= head.last_offset) {
      inAborted.add((pending.shift() as AbortedTransaction).producer_id);
    }
    if ((head.attributes & CONTROL) !== 0) {
      if (isAbortMarker(reader)) inAborted.delete(head.producer_id);
    } else if ((head.attributes & TRANSACTIONAL) === 0 || !inAborted.has(head.producer_id)) {
      const end = start + 12 + length;
      size += readRecords(source, bytesOf(reader, head, end), head, from_offset, out);
    }
    reader.position = start + 12 + length;
    if (head.last_offset >= next_offset) next_offset = head.last_offset + 1;
  }
  return { records: out, bytes: size, next_offset };
}

interface BatchHead {
  readonly base_offset: number;
  readonly last_offset: number;
  readonly attributes: number;
  readonly first_ms: number;
  readonly last_ms: number;
  readonly producer_id: number;
  readonly count: number;
}

function readHead(reader: ByteReader, base_offset: number): BatchHead {
  reader.position += 4; // leader epoch
  const format = reader.int8();
  if (format !== 2) throw new Error(`record format ${format} is too old to be read`);
  reader.position += 4; // checksum: the connection and the broker have checked it
  const attributes = reader.int16();
  const last_offset = base_offset + reader.int32();
  const first_ms = reader.int64();
  const last_ms = reader.int64();
  const producer_id = reader.int64();
  reader.position += 6; // producer epoch, sequence
  const count = reader.int32();
  return { base_offset, last_offset, attributes, first_ms, last_ms, producer_id, count };
}

/** A control batch holds one record whose key is (version, type); type 0 ends a transaction by abort. */
function isAbortMarker(reader: ByteReader): boolean {
  reader.signed(); // record length
  reader.int8(); // attributes
  reader.signed(); // time
  reader.signed(); // offset
  const key = reader.nullableBytes();
  return key !== null && key.length >= 4 && key.readInt16BE(2) === 0;
}

function bytesOf(reader: ByteReader, head: BatchHead, end: number): ByteReader {
  const codec = head.attributes & CODEC;
  if (codec === 0) return reader;
  const algorithm =
    compressionsAlgorithmsByBitmask[codec as keyof typeof compressionsAlgorithmsByBitmask];
  if (algorithm === undefined) throw new Error(`compression ${codec} is not known`);
  return new ByteReader(algorithm.decompressSync(reader.bytes.subarray(reader.position, end)));
}

/** Appends to `out`; returns the bytes of keys, values and headers. */
function readRecords(
  source: { readonly topic: string; readonly partition: number },
  reader: ByteReader,
  head: BatchHead,
  from_offset: number,
  out: StreamRecord[],
): number {
  const { topic, partition } = source;
  const fixed_ms = (head.attributes & LOG_APPEND_TIME) !== 0 ? head.last_ms : null;
  // Records mostly repeat the header names of the record before; then they share the key.
  const names: Buffer[] = [];
  let bytes = 0;
  for (let index = 0; index < head.count; index += 1) {
    const length = reader.signed();
    const end = reader.position + length;
    reader.position += 1; // attributes
    const timestamp_ms = fixed_ms ?? head.first_ms + reader.signed();
    if (fixed_ms !== null) reader.signed();
    const offset = head.base_offset + reader.signed();
    if (offset >= from_offset) {
      const key = reader.nullableBytes();
      const value = reader.nullableBytes();
      const headers = readHeaders(reader, names);
      out.push({ topic, partition, offset, timestamp_ms, key, value, headers });
      bytes += length;
    }
    reader.position = end;
  }
  return bytes;
}

/** `names`: the keys of the record before, by position. */
function readHeaders(reader: ByteReader, names: Buffer[]): RawHeader[] {
  const headers: RawHeader[] = [];
  const count = reader.signed();
  for (let index = 0; index < count; index += 1) {
    const key = reader.nullableBytesLike(names[index]) ?? NOTHING;
    names[index] = key;
    headers.push([key, reader.nullableBytes() ?? NOTHING]);
  }
  return headers;
}
