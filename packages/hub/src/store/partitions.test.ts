import {
  createEmptyDatabase,
  createTestDatabase,
  type TestDatabase,
  until,
} from '@streaming-hub/testkit';
import { afterEach, expect, test } from 'vitest';
import { createPartitionCron, ensurePartitions, migrate, weekNumber } from './index.ts';

const week_ms = 604_800_000;
const parents = ['dead_letters', 'deliveries', 'delivery_attempts', 'event_inbox'];
let database: TestDatabase;
afterEach(() => database.drop());

async function weeks(parent: string): Promise<number[]> {
  const { rows } = await database.pool.query<{ name: string }>(
    'select inhrelid::regclass::text as name from pg_inherits where inhparent = $1::regclass order by 1',
    [parent],
  );
  return rows.map((row) => Number(row.name.split('_w')[1]));
}

test('makes last week, this week and the coming ones, from many processes at once', async () => {
  database = await createEmptyDatabase();
  await migrate(database.pool);
  const now_ms = 3000 * week_ms + 5;
  await Promise.all(Array.from({ length: 8 }, () => ensurePartitions(database.pool, 4, now_ms)));
  for (const parent of parents)
    expect(await weeks(parent)).toEqual([2999, 3000, 3001, 3002, 3003, 3004]);
});

test('bounds leave no gap: the first and last instant of a week have a home', async () => {
  database = await createTestDatabase();
  const week = weekNumber(Date.now());
  for (const seq of [week * week_ms * 1000, (week + 1) * week_ms * 1000 - 1]) {
    await database.pool.query("insert into deliveries values (1, $1, 1, 't', gen_random_uuid())", [
      seq,
    ]);
    await database.pool.query(
      "insert into delivery_attempts (lane_id, seq, subscription_number, tenant_id, attempt, delivery_attempt_id, started_at, duration_us, outcome, final) values (1, $1, 1, 't', 1, gen_random_uuid(), to_timestamp($1::bigint / 1000000.0), 1, 'delivered', true)",
      [seq],
    );
  }
  const found = await database.pool.query(
    'select tableoid::regclass::text as a, (select tableoid::regclass::text from delivery_attempts x where x.seq = d.seq) as b from deliveries d',
  );
  expect(new Set(found.rows.map((row) => `${row.a} ${row.b}`))).toEqual(
    new Set([`deliveries_w${week} delivery_attempts_w${week}`]),
  );
});

test('a reader with an old snapshot neither delays a new partition nor, behind it, the writers', async () => {
  database = await createTestDatabase();
  const reader = await database.pool.connect();
  const writer = await database.pool.connect();
  try {
    await reader.query('begin isolation level repeatable read');
    await reader.query(
      'select count(*) from deliveries, event_inbox, delivery_attempts, dead_letters',
    );
    await writer.query('begin');
    await writer.query("insert into deliveries values (1, $1, 1, 't', gen_random_uuid())", [
      Date.now() * 1000,
    ]);
    await database.pool.query("set lock_timeout = '2s'");
    await ensurePartitions(database.pool, 6);
    await writer.query("insert into deliveries values (2, $1, 1, 't', gen_random_uuid())", [
      Date.now() * 1000,
    ]);
    await writer.query('commit');
  } finally {
    reader.release(true);
    writer.release(true);
  }
  expect(await weeks('deliveries')).toHaveLength(8);
});

test('the cron keeps ahead of the clock, survives failures, starts and stops any number of times', async () => {
  database = await createTestDatabase();
  let now_ms = Date.now();
  const errors: string[] = [];
  const log = {
    info() {},
    warn() {},
    error: (_: object, message: string) => void errors.push(message),
  };
  const clock = { now_ms: () => now_ms, monotonic_ms: () => performance.now() };
  const cron = createPartitionCron({ pool: database.pool, interval_ms: 10, clock, log });
  await Promise.all([cron.start(), cron.start()]);

  now_ms += week_ms;
  const next = weekNumber(now_ms) + 4;
  await until(async () => (await weeks('deliveries')).includes(next));

  await database.pool.query('alter function ensure_week rename to mislaid');
  await until(() => errors.length > 0);
  await database.pool.query('alter function mislaid rename to ensure_week');
  now_ms = (next - 3) * week_ms;
  await until(async () => (await weeks('event_inbox')).includes(next + 1));

  await Promise.all([cron.stop(), cron.stop()]);
  await cron.start();
  await cron.stop();
  await cron.stop();
});
