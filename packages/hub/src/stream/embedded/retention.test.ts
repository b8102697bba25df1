import { createTestDatabase, type TestDatabase, until } from '@streaming-hub/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Stream } from '../port.ts';
import { dayOf } from './days.ts';
import { openEmbeddedStream } from './index.ts';
import { createRetention } from './retention.ts';

const hour_ms = 3_600_000;
const day_ms = 24 * hour_ms;
let database: TestDatabase;
let stream: Stream;

beforeAll(async () => {
  database = await createTestDatabase();
  stream = openEmbeddedStream({ database: database.config });
  await stream.ensureTopics([
    { name: 'week', partitions: 1 },
    { name: 'hour', partitions: 1, retention_ms: hour_ms },
  ]);
});
afterAll(async () => {
  await stream.close();
  await database.drop();
});

function createCleaner() {
  return createRetention(database.pool, {
    retention_ms_default: 7 * day_ms,
    onFault: (fault) => {
      throw fault;
    },
  });
}

async function publish(topic: string, value: string): Promise<number | undefined> {
  const [position] = await stream.publish([
    { topic, key: null, value: Buffer.from(value), headers: [] },
  ]);
  return position?.offset;
}

async function read(topic: string): Promise<string[]> {
  const values: string[] = [];
  const consumer = stream.consume({
    group: `read-${Math.random()}`,
    topics: new RegExp(topic),
    refresh_interval_ms: 60_000,
    batch_records_max: 100,
    batch_bytes_max: 100_000,
    buffered_bytes_max: 1_000_000,
    loadPositions: async () => new Map(),
    onFault: () => {},
    onBatch: async ({ records }) => {
      values.push(...records.map((record) => record.value?.toString() ?? ''));
      return (records.at(-1)?.offset ?? 0) + 1;
    },
  });
  await consumer.start();
  await publish(topic, 'end');
  await expect.poll(() => values.at(-1), { timeout: 10_000 }).toBe('end');
  await consumer.stop();
  return values;
}

async function tables(): Promise<number[]> {
  const found = await database.pool.query<{ name: string }>(
    `select inhrelid::regclass::text as name from pg_inherits where inhparent = 'stream_log'::regclass order by 1`,
  );
  return found.rows.map((row) => Number(row.name.replace('stream_log_d', '')));
}

test('chunks of a topic that keeps less than the others are deleted, offsets go on', async () => {
  const retention = createCleaner();
  await publish('hour', 'old');
  await publish('week', 'kept');
  await until(() => retention.apply(Date.now() + 2 * hour_ms));
  expect(await publish('hour', 'new')).toBe(1);
  expect(await read('hour')).toEqual(['new', 'end']);
  expect(await read('week')).toEqual(['kept', 'end']);
});

test('a day that nobody needs is dropped with its table, offsets go on', async () => {
  const retention = createCleaner();
  const today = dayOf(Date.now());
  const next = (await publish('week', 'x')) ?? 0;
  await until(() => retention.apply(Date.now() + 9 * day_ms));
  expect(await tables()).not.toContain(today);
  expect(await tables()).toContain(today + 9);
  // The clock of the database has not moved: today's table is missing and is made again.
  expect(await publish('week', 'y')).toBe(next + 1);
  expect(await read('week')).toEqual(['y', 'end']);
});

test('what was appended on several days is read in order', async () => {
  const today = dayOf(Date.now());
  await database.pool.query('select ensure_stream_days($1, $2)', [today - 3, today]);
  await stream.ensureTopics([{ name: 'days', partitions: 1 }]);
  await publish('days', 'first');
  await database.pool.query(
    `update stream_log set day = $1 where topic_id = (select id from stream_topics where name = 'days')`,
    [today - 3],
  );
  expect(await publish('days', 'second')).toBe(1);
  expect(await read('days')).toEqual(['first', 'second', 'end']);
});

test('a clock that was set back does not bring disorder', async () => {
  const today = dayOf(Date.now());
  await database.pool.query('select ensure_stream_days($1, $2)', [today, today + 2]);
  await stream.ensureTopics([{ name: 'clock', partitions: 1 }]);
  await publish('clock', 'tomorrow');
  await database.pool.query(
    `update stream_log set day = $1 where topic_id = (select id from stream_topics where name = 'clock')`,
    [today + 1],
  );
  expect(await publish('clock', 'today')).toBe(1);
  expect(await read('clock')).toEqual(['tomorrow', 'today', 'end']);
});

test('processes that make the tables of the same days at once do not get in each other’s way', async () => {
  const runs = Array.from({ length: 6 }, () =>
    database.pool.query('select ensure_stream_days($1, $2)', [100, 102]),
  );
  await Promise.all(runs);
  expect((await tables()).filter((day) => day <= 102)).toEqual([100, 101, 102]);
});
