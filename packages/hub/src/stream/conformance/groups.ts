import { until } from '@streaming-hub/testkit';
import { expect, test } from 'vitest';
import { wait } from '../../base/index.ts';
import { after, type Harness, numbered, outgoing, type Taken } from './harness.ts';

const partitions = 4;
const everyPartition = Array.from({ length: partitions }, (_, n) => n);

export function groupCases(harness: () => Harness): void {
  test('two groups each get everything', async () => {
    const { stream, topic, consume, eventually } = harness();
    const name = await topic(2);
    await stream.publish([...numbered(name, 0, 5), ...numbered(name, 1, 5)]);
    const [one, two] = await Promise.all([consume(name), consume(name)]);
    await eventually(() => one.records.length === 10 && two.records.length === 10);
  });

  test('two members share the partitions; nothing is lost, and nothing handled twice once settled', async () => {
    const { stream, topic, consume, eventually, secondStream, name: unique } = harness();
    const name = await topic(partitions);
    const group = unique('group');
    const publishing = publishSteadily(stream, name);
    const one = await consume(name, { group });
    await eventually(() => one.records.length > 20);
    const two = await consume(name, { group, on: await secondStream() });
    await eventually(() => shared(one, two));
    const marked = await stream.publish(
      everyPartition.flatMap((p) => numbered(name, p, 20, 1_000_000)),
    );
    await eventually(
      () => [...one.records, ...two.records].filter(isMarked).length >= marked.length,
    );
    const published = await publishing.stop();
    await eventually(() => positions([one, two]).size === published + marked.length);
    const handled = [...one.records, ...two.records].filter(isMarked);
    expect(handled.length).toBe(marked.length);
    expect(two.records.some(isMarked) && one.records.some(isMarked)).toBe(true);
  });

  test('a member that leaves hands over without loss or repetition', async () => {
    const { stream, topic, consume, eventually, secondStream, name: unique } = harness();
    const name = await topic(partitions);
    const group = unique('group');
    const one = await consume(name, { group });
    const two = await consume(name, { group, on: await secondStream() });
    await eventually(() => shared(one, two));
    const publishing = publishSteadily(stream, name);
    await eventually(() => two.records.length > 20);
    await two.consumer.stop();
    await eventually(() => one.consumer.assignments().length === partitions);
    const published = await publishing.stop();
    await eventually(() => positions([one, two]).size === published);
    expect(one.records.length + two.records.length).toBe(published);
  });

  test('a member that vanishes is replaced', { timeout: 60_000 }, async () => {
    const {
      stream,
      topic,
      consume,
      eventually,
      secondStream,
      vanish_patience_ms,
      name: unique,
    } = harness();
    const name = await topic(partitions);
    const group = unique('group');
    const one = await consume(name, { group });
    const doomed = await secondStream();
    const two = await consume(name, { group, on: doomed });
    await eventually(() => shared(one, two));
    await doomed.close();
    const sent = await stream.publish(
      everyPartition.map((partition) => outgoing(name, 'x', { partition })),
    );
    await until(() => positions([one]).size === sent.length, vanish_patience_ms);
    expect(one.consumer.assignments().length).toBe(partitions);
  });

  test('the signal of a batch is aborted when its partition is taken away', async () => {
    const { stream, topic, consume, eventually, secondStream, name: unique } = harness();
    const name = await topic(partitions);
    const group = unique('group');
    const aborted = new Set<number>();
    await stream.publish(everyPartition.flatMap((partition) => numbered(name, partition, 3)));
    // Holds every batch until it is told to let go, and then has handled nothing of it.
    const one = await consume(name, {
      group,
      onBatch: async (batch) => {
        if (!batch.signal.aborted) {
          await new Promise((resolve) =>
            batch.signal.addEventListener('abort', resolve, { once: true }),
          );
        }
        aborted.add(batch.partition);
        return batch.records[0]?.offset ?? 0;
      },
    });
    await eventually(() => one.batches.length === partitions);
    const two = await consume(name, { group, on: await secondStream() });
    await eventually(() => aborted.size === partitions / 2);
    await eventually(() => two.records.length === 3 * (partitions / 2));
    expect(new Set(two.records.map((record) => record.partition))).toEqual(aborted);
    await one.consumer.stop();
  });

  test('a batch that cannot be stopped is finished before another member gets its partition', async () => {
    const { stream, topic, consume, eventually, secondStream, quiet_ms, name: unique } = harness();
    const name = await topic(2);
    const group = unique('group');
    const running = new Set<number>();
    let overlaps = 0;
    const onBatch = async (batch: Parameters<typeof after>[0]) => {
      if (running.has(batch.partition)) overlaps++;
      running.add(batch.partition);
      await wait(quiet_ms);
      running.delete(batch.partition);
      return after(batch);
    };
    const publishing = publishSteadily(stream, name, 2);
    const one = await consume(name, { group, onBatch });
    await eventually(() => one.batches.length > 0);
    const two = await consume(name, { group, onBatch, on: await secondStream() });
    await eventually(() => two.records.length > 0);
    const published = await publishing.stop();
    await eventually(() => positions([one, two]).size === published);
    expect(overlaps).toBe(0);
    expect(one.records.length + two.records.length).toBe(published);
  });
}

/** Every partition has one holder, and each member holds half. */
function shared(one: Taken, two: Taken): boolean {
  const held = [one, two].map((taken) =>
    taken.consumer.assignments().map(({ partition }) => partition),
  );
  const half = partitions / 2;
  return held.every((own) => own.length === half) && new Set(held.flat()).size === partitions;
}

function isMarked(record: { value: Buffer | null }): boolean {
  return Number(record.value?.toString()) >= 1_000_000;
}

function positions(takers: readonly Taken[]): Set<string> {
  return new Set(
    takers.flatMap((taken) => taken.records.map((one) => `${one.partition}/${one.offset}`)),
  );
}

/** One record after the other, round the partitions, until stopped; then tells how many. */
function publishSteadily(stream: Harness['stream'], topic: string, count = partitions) {
  let going = true;
  const done = (async () => {
    let published = 0;
    while (going) {
      await stream.publish([outgoing(topic, `${published}`, { partition: published % count })]);
      published++;
      await wait(2);
    }
    return published;
  })();
  return {
    stop(): Promise<number> {
      going = false;
      return done;
    },
  };
}
