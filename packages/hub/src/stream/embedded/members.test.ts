import { createTestDatabase, type TestDatabase, until } from '@streaming-hub/testkit';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { wait } from '../../base/index.ts';
import type { Stream, StreamConsumer } from '../port.ts';
import { openEmbeddedStream } from './index.ts';

const partitions = 3;
const lease_ms = 1200;
let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(() => database.drop());

const open = () => openEmbeddedStream({ database: database.config, lease_ms });

type Action =
  | { do: 'publish'; records: number }
  | { do: 'join' | 'leave' | 'vanish' }
  | { do: 'wait'; ms: number };
const action = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('publish' as const),
      records: fc.integer({ min: 1, max: 60 }),
    }),
  },
  { weight: 3, arbitrary: fc.constant({ do: 'join' as const }) },
  { weight: 2, arbitrary: fc.constant({ do: 'leave' as const }) },
  { weight: 1, arbitrary: fc.constant({ do: 'vanish' as const }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('wait' as const), ms: fc.integer({ min: 0, max: 60 }) }),
  },
);

/** Members come, leave and vanish while several publishers write; everything that was handled is kept in order. */
async function play(actions: readonly Action[]): Promise<void> {
  const name = `members.${Math.random().toString(36).slice(2)}`;
  const publishers = [open(), open()];
  const members: { stream: Stream; consumer: StreamConsumer }[] = [];
  const handled = new Map<string, number>();
  const problems: string[] = [];
  let published = 0;
  let vanished = 0;
  const writing: Promise<unknown>[] = [];
  await publishers[0]?.ensureTopics([{ name, partitions }]);

  async function join(): Promise<void> {
    const stream = open();
    const next = new Map<number, number>();
    const consumer = stream.consume({
      group: name,
      topics: new RegExp(name),
      refresh_interval_ms: 60_000,
      batch_records_max: 7,
      batch_bytes_max: 100_000,
      buffered_bytes_max: 1_000_000,
      loadPositions: async (assigned) => {
        for (const { partition } of assigned) next.delete(partition);
        return new Map();
      },
      onFault: () => {},
      onBatch: async ({ partition, records, signal }) => {
        await wait(Math.random() * 4);
        if (signal.aborted && Math.random() < 0.5) throw new Error('too late');
        for (const { offset } of records) {
          const expected = next.get(partition);
          if (expected !== undefined && offset !== expected)
            problems.push(`${offset}, not ${expected}`);
          next.set(partition, offset + 1);
          const key = `${partition}/${offset}`;
          handled.set(key, (handled.get(key) ?? 0) + 1);
        }
        return (records.at(-1)?.offset ?? 0) + 1;
      },
    });
    members.push({ stream, consumer });
    await consumer.start();
  }

  for (const one of actions) {
    switch (one.do) {
      case 'publish':
        for (let n = 0; n < one.records; n++) {
          const value = Buffer.from(`${published}`);
          const record = {
            topic: name,
            partition: published++ % partitions,
            key: null,
            value,
            headers: [],
          };
          writing.push(publishers[n % 2]?.publish([record]) ?? Promise.resolve());
        }
        break;
      case 'join':
        if (members.length < 4) await join();
        break;
      case 'leave': {
        const leaver = members.shift();
        await leaver?.consumer.stop();
        await leaver?.stream.close();
        break;
      }
      case 'vanish': {
        const victim = members.shift();
        if (victim) vanished++;
        await victim?.stream.close();
        break;
      }
      case 'wait':
        await wait(one.ms);
        break;
      default:
        one satisfies never;
    }
  }
  await Promise.all(writing);
  await join();
  await until(() => handled.size === published, 15_000);
  for (const { consumer, stream } of members) {
    await consumer.stop();
    await stream.close();
  }
  await Promise.all(publishers.map((stream) => stream.close()));
  expect(problems).toEqual([]);
  const twice = [...handled.values()].filter((count) => count > 1).length;
  if (vanished === 0) expect(twice).toBe(0);
}

test('members come and go: nothing is lost, the order holds, and without a crash nothing is handled twice', {
  timeout: 120_000,
}, async () => {
  await fc.assert(fc.asyncProperty(fc.array(action, { minLength: 5, maxLength: 25 }), play), {
    numRuns: 8,
    endOnFailure: true,
  });
});
