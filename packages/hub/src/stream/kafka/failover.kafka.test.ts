import { type KafkaCluster, kafkaStartable, startKafka, until } from '@streaming-hub/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { lost, openStream, publishNumbers, read, unique, values } from './testing.ts';

describe.skipIf(!kafkaStartable())('a Kafka of three', () => {
  let cluster: KafkaCluster;
  beforeAll(async () => {
    cluster = await startKafka({ nodes: 3 });
  });
  afterAll(() => cluster?.stop());

  test('each broker dies once under load: nothing acknowledged is lost, nothing is stored twice', {
    timeout: 120_000,
  }, async () => {
    const stream = openStream(cluster.brokers);
    const name = unique('failover');
    await stream.ensureTopics([{ name, partitions: 6 }]);
    const reading = await read(stream, name);
    const publishing = publishNumbers(stream, name, 6);
    await until(() => publishing.acknowledged.size > 100, 20_000);
    for (const node of cluster.nodes) {
      const before = publishing.acknowledged.size;
      await node.kill();
      // All partitions have a leader again, on two brokers.
      await until(() => publishing.acknowledged.size > before + 200, 30_000);
      await node.restart();
      await until(() => reading.consumer.healthy(), 30_000);
    }
    await publishing.stop();
    expect(await lost(publishing, reading)).toEqual([]);
    // One stored copy of each value: the idempotent producer's retries left no duplicates.
    const stored = new Set(reading.records.map((one) => `${one.partition}/${one.offset}`));
    expect(stored.size).toBe(new Set(values(reading.records)).size);
    expect(publishing.errors).toEqual([]);
    await stream.close();
  });

  test('a broker that freezes holds up nothing for long, and nothing is lost when it wakes', {
    timeout: 120_000,
  }, async () => {
    const stream = openStream(cluster.brokers);
    const name = unique('frozen');
    await stream.ensureTopics([{ name, partitions: 6 }]);
    const reading = await read(stream, name);
    const publishing = publishNumbers(stream, name, 6);
    await until(() => publishing.acknowledged.size > 100, 20_000);
    const [node] = cluster.nodes as [(typeof cluster.nodes)[number]];
    node.freeze();
    const before = publishing.acknowledged.size;
    const read_before = reading.records.length;
    await until(() => publishing.acknowledged.size > before + 300, 40_000);
    await until(() => reading.records.length > read_before + 300, 40_000);
    node.thaw();
    await publishing.stop();
    await until(() => reading.consumer.healthy(), 30_000);
    expect(await lost(publishing, reading)).toEqual([]);
    expect(publishing.errors).toEqual([]);
    await stream.close();
  });
});
