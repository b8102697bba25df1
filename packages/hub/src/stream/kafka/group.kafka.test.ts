import { kafkaAvailable, kafkaBrokers, until } from '@streaming-hub/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { wait } from '../../base/index.ts';
import type { PartitionBatch, Stream } from '../port.ts';
import { openStream, publishNumbers, type Reading, read, text, unique } from './testing.ts';

/** What a database does for the hub: one position per partition, moved forward together with the rows. */
class Store {
  readonly #next = new Map<string, number>();
  readonly values: string[] = [];
  readonly gaps: string[] = [];

  positions(): ReadonlyMap<string, number> {
    return new Map(this.#next);
  }

  take(batch: PartitionBatch): number {
    const key = `${batch.topic}/${batch.partition}`;
    let next = this.#next.get(key) ?? 0;
    for (const record of batch.records) {
      if (record.offset < next) continue; // somebody else has stored it
      if (record.offset > next) this.gaps.push(`${key} ${next} to ${record.offset}`);
      this.values.push(record.value?.toString() ?? '');
      next = record.offset + 1;
    }
    this.#next.set(key, next);
    return next;
  }
}

describe.skipIf(!kafkaAvailable())('Kafka consumer groups', () => {
  let stream: Stream;
  beforeAll(() => {
    stream = openStream(kafkaBrokers());
  });
  afterAll(() => stream?.close());

  test('members that come and go at random: every record is stored once, in order, without a gap', {
    timeout: 90_000,
  }, async () => {
    const name = unique('group');
    const group = unique('group');
    await stream.ensureTopics([{ name, partitions: 6 }]);
    const store = new Store();
    const join = () =>
      read(openStream(kafkaBrokers()), name, {
        group,
        batch_records_max: 20,
        loadPositions: async () => store.positions(),
        onBatch: async (batch) => {
          await wait(Math.random() * 5);
          // A stale owner writes nothing: the position is the fence.
          return store.take(batch);
        },
      });
    const publishing = publishNumbers(stream, name, 6);
    const members: Reading[] = [await join()];
    for (let round = 0; round < 14; round += 1) {
      await wait(Math.random() * 300);
      if (members.length < 2 || (members.length < 4 && Math.random() < 0.5)) {
        members.push(await join());
      } else {
        const [leaving] = members.splice(Math.floor(Math.random() * members.length), 1);
        await leaving?.consumer.stop();
      }
    }
    await publishing.stop();
    await until(() => store.values.length >= publishing.acknowledged.size, 20_000);
    await Promise.all(members.map((member) => member.consumer.stop()));
    expect(store.gaps).toEqual([]);
    expect(new Set(store.values).size).toBe(store.values.length);
    expect(new Set(store.values)).toEqual(publishing.acknowledged);
    expect(publishing.errors).toEqual([]);
  });

  test('start and stop in any order and at any moment', { timeout: 60_000 }, async () => {
    const name = unique('group');
    const group = unique('group');
    await stream.ensureTopics([{ name, partitions: 2 }]);
    await stream.publish([text(name, 'a', 0), text(name, 'b', 1)]);
    const once = async (delay_ms: number) => {
      const reading = await read(stream, name, { group }).catch(() => null);
      await wait(delay_ms);
      await Promise.all([reading?.consumer.stop(), reading?.consumer.stop()]);
    };
    await Promise.all([0, 5, 20, 60].map(once));
    const options = {
      group,
      topics: new RegExp(name),
      refresh_interval_ms: 1_000,
      batch_records_max: 10,
      batch_bytes_max: 1_000,
      buffered_bytes_max: 100_000,
      loadPositions: async () => new Map<string, number>(),
      onBatch: async () => 1,
      onFault: () => {},
    };
    const unstarted = stream.consume(options);
    await unstarted.stop();
    await expect(unstarted.start()).rejects.toThrow(/stopped/);
    const hasty = stream.consume(options);
    const starting = hasty.start().catch((error: unknown) => error);
    await hasty.stop();
    await starting;
    expect(hasty.assignments()).toEqual([]);
    // The group is as good as new.
    const last = await read(stream, name, { group: unique('group') });
    await until(() => last.records.length === 2);
    await last.consumer.stop();
  });

  test('a group that nothing matches yet is joined, and gets its topic when that appears', async () => {
    const name = unique('later');
    const reading = await read(stream, name, { refresh_interval_ms: 100 });
    expect(reading.consumer.assignments()).toEqual([]);
    expect(reading.consumer.healthy()).toBe(true);
    await stream.ensureTopics([{ name, partitions: 1 }]);
    await stream.publish([text(name, 'x')]);
    await until(() => reading.records.length === 1);
    await reading.consumer.stop();
  });

  test('one partition whose handler never succeeds does not slow the others', async () => {
    const name = unique('stuck');
    await stream.ensureTopics([{ name, partitions: 4 }]);
    const big = Buffer.alloc(20_000, 'x');
    const records = (partition: number, count: number) =>
      Array.from({ length: count }, () => ({
        topic: name,
        partition,
        key: null,
        value: big,
        headers: [],
      }));
    await stream.publish([0, 1, 2, 3].flatMap((partition) => records(partition, 100)));
    const counts = [0, 0, 0, 0];
    const reading = await read(stream, name, {
      buffered_bytes_max: 300_000, // less than what the stuck one could take alone
      onBatch: async (batch) => {
        if (batch.partition === 0) throw new Error('never');
        counts[batch.partition] = (counts[batch.partition] ?? 0) + batch.records.length;
        return (batch.records.at(-1)?.offset ?? 0) + 1;
      },
    });
    await until(() => counts.slice(1).every((count) => count === 100));
    expect(counts[0]).toBe(0);
    await reading.consumer.stop();
  });
});
