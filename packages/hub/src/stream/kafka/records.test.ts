import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { OutgoingRecord } from '../port.ts';
import { decodeRecords } from './decode.ts';
import { encodeBatch, recordBytes } from './encode.ts';
import { ByteReader, signedSize, unsignedSize, writeSigned, writeUnsigned } from './varint.ts';

const producer = { producer_id: 7n, epoch: 0 };
const bytes = fc.uint8Array({ maxLength: 300 }).map((array) => Buffer.from(array));
const outgoing: fc.Arbitrary<OutgoingRecord> = fc.record({
  topic: fc.constant('t'),
  key: fc.option(bytes),
  value: fc.option(bytes),
  headers: fc.array(fc.tuple(bytes, bytes), { maxLength: 4 }),
  timestamp_ms: fc.integer({ min: 0, max: 4_000_000_000_000 }),
});

test('varints of any safe integer come back, in the size foretold', () => {
  const safe = fc.integer({ min: -(2 ** 52), max: 2 ** 52 });
  fc.assert(
    fc.property(safe, (value) => {
      const buffer = Buffer.alloc(10);
      const end = writeSigned(buffer, 0, value);
      expect(end).toBe(signedSize(value));
      expect(new ByteReader(buffer).signed()).toBe(value);
      const natural = Math.abs(value);
      expect(writeUnsigned(buffer, 0, natural)).toBe(unsignedSize(natural));
      expect(new ByteReader(buffer).unsigned()).toBe(natural);
    }),
  );
});

test('a batch decodes to what was encoded, within the size foretold', () => {
  fc.assert(
    fc.property(fc.array(outgoing, { minLength: 1, maxLength: 20 }), (records) => {
      const batch = encodeBatch(records, producer, 0, 0);
      const foretold = records.reduce((sum, record) => sum + recordBytes(record), 61);
      expect(batch.length).toBeLessThanOrEqual(foretold);
      const decoded = decodeRecords({ topic: 't', partition: 3 }, batch, 0, []);
      expect(decoded.next_offset).toBe(records.length);
      expect(decoded.records).toEqual(
        records.map(({ key, value, headers, timestamp_ms }, offset) => ({
          topic: 't',
          partition: 3,
          offset,
          timestamp_ms,
          key,
          value,
          headers,
        })),
      );
    }),
  );
});

function batchAt(offset: number, attributes: number, producer_id: bigint, count: number): Buffer {
  const records = Array.from({ length: count }, (_, index) => ({
    topic: 't',
    // A control record's key: version, then type (0 = abort).
    key: (attributes & 32) !== 0 ? Buffer.from([0, 0, 0, 0]) : Buffer.from(`${offset + index}`),
    value: null,
    headers: [],
  }));
  const batch = encodeBatch(records, { producer_id, epoch: 0 }, 0, 0);
  batch.writeBigInt64BE(BigInt(offset), 0);
  batch.writeInt16BE(attributes, 21);
  return batch;
}

const source = { topic: 't', partition: 0 };
const transactional = 16;
const control = 32;

test('records of an aborted transaction are skipped also when its end is beyond the answer', () => {
  const log = Buffer.concat([
    batchAt(0, transactional, 1n, 2), // aborted later
    batchAt(2, transactional, 2n, 2), // committed
    batchAt(4, 0, -1n, 1), // no transaction
  ]);
  const decoded = decodeRecords(source, log, 0, [{ producer_id: 1, first_offset: 0 }]);
  expect(decoded.records.map((record) => record.offset)).toEqual([2, 3, 4]);
  expect(decoded.next_offset).toBe(5);
});

test('a producer may abort one transaction and commit the next', () => {
  const log = Buffer.concat([
    batchAt(0, transactional, 1n, 2),
    batchAt(2, transactional | control, 1n, 1), // its abort marker
    batchAt(3, transactional, 1n, 2),
  ]);
  const decoded = decodeRecords(source, log, 0, [{ producer_id: 1, first_offset: 0 }]);
  expect(decoded.records.map((record) => record.offset)).toEqual([3, 4]);
});

test('reading begins inside a batch and ends before one that was cut off', () => {
  const whole = Buffer.concat([batchAt(0, 0, -1n, 5), batchAt(5, 0, -1n, 5)]);
  const decoded = decodeRecords(source, whole.subarray(0, whole.length - 1), 3, []);
  expect(decoded.records.map((record) => record.offset)).toEqual([3, 4]);
  expect(decoded.next_offset).toBe(5);
});
