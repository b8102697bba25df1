import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type PlacedRecord, packBatch } from './batch.ts';
import { packedBytes, unpackChunk } from './codec.ts';

const bytes = (maxLength: number) =>
  fc.uint8Array({ maxLength }).map((array) => Buffer.from(array));
const arbitraryRecord: fc.Arbitrary<PlacedRecord> = fc
  .record({
    topic_id: fc.integer({ min: 1, max: 3 }),
    partition: fc.integer({ min: 0, max: 2 }),
    key: fc.option(bytes(20)),
    value: fc.option(bytes(5000)),
    headers: fc.array(fc.tuple(bytes(10), bytes(30)), { maxLength: 4 }),
    timestamp_ms: fc.integer({ min: 0, max: 4e12 }),
  })
  .map(({ topic_id, partition, timestamp_ms, ...rest }) => {
    const record = { topic: `t${topic_id}`, ...rest };
    return { record, topic_id, partition, timestamp_ms, bytes: packedBytes(record) };
  });

test('records come back from their chunks as they were, each at the position that was given out', () => {
  fc.assert(
    fc.property(
      fc.array(fc.array(arbitraryRecord, { maxLength: 8 }), { maxLength: 5 }),
      (calls) => {
        const batch = packBatch(calls);
        const next = new Map<string, number>();
        const counts = JSON.parse(`[${String(batch.parameters[2]).slice(1, -1)}]`) as number[];
        const at = batch.appended(counts.map(() => 0));
        const first_offsets = at.map((chunk, index) => {
          const partition = `${chunk.topic_id}/${chunk.partition}`;
          const first = next.get(partition) ?? 100;
          next.set(partition, first + (counts[index] ?? 0));
          return first;
        });
        const read = new Map(
          batch.appended(first_offsets).flatMap((chunk) => {
            const place = { topic: `t${chunk.topic_id}`, partition: chunk.partition };
            return unpackChunk(chunk.records, place, chunk.first_offset, 0).map(
              (record) => [`${record.topic}/${record.partition}/${record.offset}`, record] as const,
            );
          }),
        );
        expect(read.size).toBe(calls.flat().length);
        const positions = batch.positions(first_offsets);
        calls.forEach((call, n) => {
          call.forEach((placed, m) => {
            const { topic, partition, offset } = positions[n]?.[m] ?? {
              topic: '',
              partition: 0,
              offset: 0,
            };
            const { key, value, headers } = placed.record;
            expect(read.get(`${topic}/${partition}/${offset}`)).toEqual({
              topic,
              partition,
              offset,
              timestamp_ms: placed.timestamp_ms,
              key,
              value,
              headers,
            });
          });
          const own =
            positions[n]?.filter((one) => one.partition === 0 && one.topic === 't1') ?? [];
          own.forEach((one, index) => {
            if (index > 0) expect(one.offset).toBeGreaterThan(own[index - 1]?.offset ?? 0);
          });
        });
      },
    ),
    { numRuns: 50 },
  );
});

test('reading from the middle of a chunk leaves out what lies before', () => {
  const placed = ['a', 'b', 'c'].map((text) => {
    const record = { topic: 't', key: null, value: Buffer.from(text), headers: [] };
    return { record, topic_id: 1, partition: 0, timestamp_ms: 0, bytes: packedBytes(record) };
  });
  const [chunk] = packBatch([placed]).appended([7]);
  const read = unpackChunk(chunk?.records ?? Buffer.alloc(0), { topic: 't', partition: 0 }, 7, 9);
  expect(read.map((record) => [record.offset, record.value?.toString()])).toEqual([[9, 'c']]);
});
