import { expect, test } from 'vitest';
import { type RawHeader, RecordTooLargeError, UnknownTopicError } from '../port.ts';
import { type Harness, numbered, outgoing, values } from './harness.ts';

/** Hashes of Kafka's own tests (murmur2), as the partition of a topic with 12. */
const hashes: readonly (readonly [key: string, hash: number])[] = [
  ['21', -973932308],
  ['foobar', -790332482],
  ['a-little-bit-long-string', -985981536],
  ['a-little-bit-longer-string', -1486304829],
  ['lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8', -58897971],
  ['abc', 479470107],
];
const mebibyte = 1024 * 1024;

export function publishingCases(harness: () => Harness): void {
  test('publish gives each record its position, in order', async () => {
    const { stream, topic } = harness();
    const name = await topic(2);
    const first = await stream.publish([
      outgoing(name, 'a', { partition: 1 }),
      outgoing(name, 'b', { partition: 0 }),
      outgoing(name, 'c', { partition: 1 }),
    ]);
    expect(first).toEqual([
      { topic: name, partition: 1, offset: 0 },
      { topic: name, partition: 0, offset: 0 },
      { topic: name, partition: 1, offset: 1 },
    ]);
    const second = await stream.publish([outgoing(name, 'd', { partition: 1 })]);
    expect(second[0]?.offset).toBeGreaterThan(1);
  });

  test('publish of nothing is nothing', async () => {
    expect(await harness().stream.publish([])).toEqual([]);
  });

  test('concurrent publish calls keep their own order and never share an offset', async () => {
    const { stream, topic, consume, eventually } = harness();
    const name = await topic();
    const calls = await Promise.all(
      Array.from({ length: 40 }, (_, n) => stream.publish(numbered(name, 0, 5, n * 100))),
    );
    const offsets = calls.flat().map((position) => position.offset);
    expect(new Set(offsets).size).toBe(200);
    const taken = await consume(name);
    await eventually(() => taken.records.length === 200);
    for (const [n, positions] of calls.entries()) {
      const read = positions.map(({ offset }) =>
        taken.records.find((one) => one.offset === offset),
      );
      expect(read.map((one) => one?.value?.toString())).toEqual(
        [0, 1, 2, 3, 4].map((i) => `${n * 100 + i}`),
      );
    }
  });

  test('a key has the partition that Kafka gives it', async () => {
    const { stream, topic } = harness();
    const name = await topic(12);
    const positions = await stream.publish(
      hashes.map(([key]) => outgoing(name, key, { key: Buffer.from(key) })),
    );
    expect(positions.map((position) => position.partition)).toEqual(
      hashes.map(([, hash]) => (hash & 0x7fffffff) % 12),
    );
  });

  test('records without a key go to some partition of the topic', async () => {
    const { stream, topic } = harness();
    const name = await topic(3);
    const [position] = await stream.publish([outgoing(name, 'x')]);
    expect([0, 1, 2]).toContain(position?.partition);
  });

  test('null key, null value, empty value, binary and repeated headers come back as they were', async () => {
    const { stream, topic, consume, eventually } = harness();
    const name = await topic();
    const all_bytes = Buffer.from(Array.from({ length: 256 }, (_, n) => n));
    const headers: RawHeader[] = [
      [Buffer.from('ce-id'), Buffer.from('1')],
      [Buffer.from('ce-id'), Buffer.from('2')],
      [Buffer.from('raw'), all_bytes],
      [Buffer.from('empty'), Buffer.alloc(0)],
    ];
    const timestamp_ms = Date.now() - 5000;
    await stream.publish([
      { topic: name, key: null, value: null, headers: [], timestamp_ms },
      { topic: name, key: Buffer.alloc(0), value: Buffer.alloc(0), headers },
      { topic: name, key: all_bytes, value: all_bytes, headers: [] },
    ]);
    const taken = await consume(name);
    await eventually(() => taken.records.length === 3);
    const [nothing, empty, binary] = taken.records;
    expect(nothing).toMatchObject({ key: null, value: null, headers: [], timestamp_ms });
    expect(empty?.key).toEqual(Buffer.alloc(0));
    expect(empty?.value).toEqual(Buffer.alloc(0));
    expect(empty?.headers.map(([key, value]) => [key.toString(), value.toString('hex')])).toEqual(
      headers.map(([key, value]) => [key.toString(), value.toString('hex')]),
    );
    expect(binary?.value?.equals(all_bytes)).toBe(true);
    expect(binary?.key?.equals(all_bytes)).toBe(true);
    expect(Math.abs((empty?.timestamp_ms ?? 0) - Date.now())).toBeLessThan(60_000);
  });

  test('a value of 1 MiB passes', async () => {
    const { stream, topic, consume, eventually } = harness();
    const name = await topic();
    const value = Buffer.alloc(mebibyte, 'streaming');
    await stream.publish([
      outgoing(name, 'before'),
      { topic: name, key: null, value, headers: [] },
      outgoing(name, 'after'),
    ]);
    const taken = await consume(name);
    await eventually(() => taken.records.length === 3);
    expect(taken.records[1]?.value?.equals(value)).toBe(true);
    expect(values([taken.records[0], taken.records[2]].filter((one) => one !== undefined))).toEqual(
      ['before', 'after'],
    );
  });

  test('a record that is too large is refused with its own error', async (context) => {
    const { stream, topic, refused_value_bytes } = harness();
    if (refused_value_bytes === undefined) return context.skip();
    const value = Buffer.alloc(refused_value_bytes);
    const refused = stream.publish([{ topic: await topic(), key: null, value, headers: [] }]);
    await expect(refused).rejects.toThrow(RecordTooLargeError);
  });

  test('an unknown topic is refused by name, and works once it exists', async () => {
    const { stream, name } = harness();
    const topic = name('unknown');
    const refused = await stream.publish([outgoing(topic, 'x')]).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(UnknownTopicError);
    expect((refused as UnknownTopicError).topic).toBe(topic);
    await stream.ensureTopics([{ name: topic, partitions: 1 }]);
    expect(await stream.publish([outgoing(topic, 'x')])).toHaveLength(1);
  });

  test('ensureTopics leaves an existing topic as it is, also when called side by side', async () => {
    const { stream, name, secondStream } = harness();
    const topic = name('twice');
    const second = await secondStream();
    await Promise.all([
      stream.ensureTopics([{ name: topic, partitions: 3, retention_ms: 3_600_000 }]),
      second.ensureTopics([{ name: topic, partitions: 3, retention_ms: 3_600_000 }]),
    ]);
    await second.ensureTopics([{ name: topic, partitions: 7 }]);
    const found = (await second.listTopics()).filter((one) => one.name === topic);
    expect(found).toEqual([{ name: topic, partitions: 3 }]);
  });

  test('ping answers', async () => {
    await harness().stream.ping();
  });
}
