import { Producer } from '@platformatic/kafka';
import {
  kafkaAvailable,
  kafkaBrokers,
  kafkaWitness,
  until,
  witnessRead,
} from '@streaming-hub/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { RawHeader, Stream } from '../port.ts';
import { openStream, read, unique, values } from './testing.ts';

describe.skipIf(!kafkaAvailable())('Kafka, with another client as witness', () => {
  let stream: Stream;
  beforeAll(() => {
    stream = openStream(kafkaBrokers());
  });
  afterAll(() => stream?.close());

  async function topic(partitions = 1): Promise<string> {
    const name = unique('witness');
    await stream.ensureTopics([{ name, partitions }]);
    return name;
  }

  test('the witness reads what we publish: null values, repeated headers, keys', async () => {
    const name = await topic();
    const id = Buffer.from('ce-id');
    const headers: RawHeader[] = [
      [id, Buffer.from('one')],
      [id, Buffer.from('two')], // the same key object, which a map would keep once
      [Buffer.from('raw'), Buffer.from([0, 255, 128])],
    ];
    await stream.publish([
      { topic: name, key: Buffer.from('tenant'), value: Buffer.from('{}'), headers },
      { topic: name, key: null, value: null, headers: [] },
    ]);
    const [first, second] = await witnessRead(kafkaBrokers(), name, 2);
    expect(first?.key?.toString()).toBe('tenant');
    expect(first?.value?.toString()).toBe('{}');
    expect(first?.headers['ce-id']?.toString()).toBe('one,two');
    expect(first?.headers['raw']).toEqual(Buffer.from([0, 255, 128]));
    expect(second).toMatchObject({ key: null, value: null });
  });

  test('we read what the witness publishes: headers, null values, gzip', async () => {
    const name = await topic();
    const producer = kafkaWitness(kafkaBrokers()).producer({ idempotent: true });
    await producer.connect();
    await producer.send({
      topic: name,
      compression: 1, // gzip
      messages: [
        { key: 'k', value: 'zipped', headers: { a: ['1', '2'], b: Buffer.from([0, 255]) } },
        { key: null, value: null },
      ],
    });
    await producer.disconnect();
    const { records, consumer } = await read(stream, name);
    await until(() => records.length === 2);
    expect(records[0]?.value?.toString()).toBe('zipped');
    expect(
      records[0]?.headers.map(([key, value]) => [key.toString(), value.toString('hex')]),
    ).toEqual([
      ['a', '31'],
      ['a', '32'],
      ['b', '00ff'],
    ]);
    expect(records[1]).toMatchObject({ value: null });
    await consumer.stop();
  });

  test('keys go to the partition that the witness would choose', async () => {
    const name = await topic(12);
    const keys = Array.from({ length: 40 }, (_, n) => `tenant-${n * 7919}`);
    const producer = kafkaWitness(kafkaBrokers()).producer({ idempotent: true });
    await producer.connect();
    await producer.send({ topic: name, messages: keys.map((key) => ({ key, value: key })) });
    await producer.disconnect();
    const ours = await stream.publish(
      keys.map((key) => ({ topic: name, key: Buffer.from(key), value: null, headers: [] })),
    );
    const { records, consumer } = await read(stream, name);
    await until(() => records.length === 80);
    for (const [index, key] of keys.entries()) {
      const theirs = records.find((record) => record.value?.toString() === key);
      expect(theirs?.partition).toBe(ours[index]?.partition);
    }
    await consumer.stop();
  });

  test.each(['gzip', 'snappy', 'lz4', 'zstd'] as const)(
    '%s batches are read',
    async (compression) => {
      const name = await topic();
      const producer = new Producer({
        clientId: 'codec',
        bootstrapBrokers: kafkaBrokers(),
        idempotent: true,
        retries: 5,
      });
      const sent = Array.from({ length: 300 }, (_, n) => `${n} ${'squeeze '.repeat(n % 40)}`);
      await producer.send({
        messages: sent.map((value) => ({ topic: name, value: Buffer.from(value) })),
        compression,
      });
      await producer.close();
      const { records, consumer } = await read(stream, name);
      await until(() => records.length === sent.length);
      expect(values(records)).toEqual(sent);
      await consumer.stop();
    },
  );

  test('open and aborted transactions stay invisible, committed ones come whole', async () => {
    const name = await topic();
    const client = kafkaWitness(kafkaBrokers());
    const producer = client.producer({
      idempotent: true,
      maxInFlightRequests: 1,
      transactionalId: unique('tx'),
    });
    await producer.connect();
    const { records, consumer } = await read(stream, name);
    const send = async (value: string, end: 'commit' | 'abort') => {
      const transaction = await producer.transaction();
      await transaction.send({ topic: name, messages: [{ value }, { value }] });
      await transaction[end]();
    };
    await send('dropped', 'abort');
    await send('kept', 'commit');
    await send('dropped too', 'abort');
    await stream.publish([{ topic: name, key: null, value: Buffer.from('plain'), headers: [] }]);
    await until(() => records.length === 3);
    expect(values(records)).toEqual(['kept', 'kept', 'plain']);
    await until(async () => (await consumer.lag())[0]?.lag === 0);
    await producer.disconnect();
    await consumer.stop();
  });

  test('committed offsets are visible to the witness', async () => {
    const name = await topic(2);
    const group = unique('group');
    await stream.publish(
      [0, 1].flatMap((partition) =>
        [0, 1, 2].map(() => ({ topic: name, partition, key: null, value: null, headers: [] })),
      ),
    );
    const { records, consumer } = await read(stream, name, { group });
    const admin = kafkaWitness(kafkaBrokers()).admin();
    await admin.connect();
    await until(() => records.length === 6);
    // In the background, without a stop.
    await until(async () => {
      const [found] = await admin.fetchOffsets({ groupId: group, topics: [name] });
      return found?.partitions.every((one) => one.offset === '3');
    });
    await admin.disconnect();
    await consumer.stop();
  });
});
