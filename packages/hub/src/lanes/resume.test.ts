import { createTestDatabase, type TestDatabase, until } from '@streaming-hub/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  addEvents,
  addSubscription,
  delivered,
  dispatcherOn,
  failed,
  scriptedSink,
} from './testing.ts';

let database: TestDatabase;

beforeEach(async () => {
  database = await createTestDatabase();
});
afterEach(() => database.drop());

test('a retry that was parked and resumed at once stayed behind for good', async () => {
  const subscription = await addSubscription(database.pool, {
    ordering: 'unordered',
    retry_schedule_seconds: Array.from({ length: 12 }, () => 0.1),
  });
  await addEvents(database.pool, [subscription], ['a', 'b', 'c', 'd']);
  let isWell = false;
  const { sink, requests } = scriptedSink(() => (isWell ? delivered : failed));
  const dispatcher = dispatcherOn(database.pool, database.config, sink);
  await dispatcher.start();
  const enable = (enabled: boolean) =>
    database.pool.query('update subscriptions set enabled = $1', [enabled]);
  const rows = async (state: string) =>
    (await database.pool.query('select 1 from retries where state = $1', [state])).rowCount;
  for (let round = 0; round < 5; round += 1) {
    const before = requests.length;
    await until(() => requests.length > before + 1);
    await enable(false);
    await until(async () => (await rows('parked')) === 4);
    await enable(true);
  }
  isWell = true;
  await until(async () => (await rows('scheduled')) === 0 && (await rows('parked')) === 0);
  await dispatcher.stop();
  const dead = await database.pool.query('select 1 from dead_letters');
  expect(dead.rowCount).toBe(0);
}, 30_000);

test('parked deliveries stayed behind when the process that switched them on had never seen them', async () => {
  const subscription = await addSubscription(database.pool);
  const events = await addEvents(database.pool, [subscription], ['a', 'b', 'c']);
  const { sink, ids } = scriptedSink(() => delivered);
  const enable = (enabled: boolean) =>
    database.pool.query('update subscriptions set enabled = $1', [enabled]);
  await enable(false);
  const first = dispatcherOn(database.pool, database.config, sink);
  await first.start();
  await until(
    async () =>
      (await database.pool.query(`select 1 from retries where state = 'parked'`)).rowCount === 3,
  );
  await first.stop();
  const second = dispatcherOn(database.pool, database.config, sink);
  await second.start();
  await until(() => second.stats().shards === 64);
  await enable(true);
  await until(() => ids().length === 3);
  await second.stop();
  expect(ids()).toEqual(events);
});
