import { createTestDatabase, type TestDatabase, until } from '@streaming-hub/testkit';
import type pg from 'pg';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Sink } from '../attempt/index.ts';
import type { Dispatcher } from './dispatcher.ts';
import { addEvents, addSubscription, delivered, dispatcherOn, scriptedSink } from './testing.ts';

const lease_ms = 1_000;

let database: TestDatabase;
const running: Dispatcher[] = [];

beforeEach(async () => {
  database = await createTestDatabase();
});
afterEach(async () => {
  await Promise.all(running.splice(0).map((dispatcher) => dispatcher.stop()));
  await database.drop();
});

async function startOn(sink: Sink, pool: pg.Pool = database.pool): Promise<Dispatcher> {
  const dispatcher = dispatcherOn(pool, database.config, sink, { lease_ms, drain_ms: 5_000 });
  running.push(dispatcher);
  await dispatcher.start();
  return dispatcher;
}

const shardsHeld = async (): Promise<string> => {
  const held = await database.pool.query<{ n: number }>(
    'select count(*)::int as n from shards where lease_until > now() group by owner order by n',
  );
  return held.rows.map((row) => row.n).join();
};

/** Delivers at once, except that events with the subject `slow` take so long. */
const slowSink = (slow_ms: number) =>
  scriptedSink(async ({ event }) => {
    if (event.attributes.subject === 'slow')
      await new Promise((resolve) => setTimeout(resolve, slow_ms));
    return delivered;
  });

/** The pool, but what `meddle` throws happens instead of the statement, or after it. */
function meddling(meddle: {
  before?: (statement: string) => void;
  after?: (statement: string) => void;
}): pg.Pool {
  const query = async (config: { name?: string; text?: string } | string, ...rest: unknown[]) => {
    const statement = typeof config === 'string' ? config : (config.name ?? config.text ?? '');
    meddle.before?.(statement);
    const answer = await (database.pool.query as (...all: unknown[]) => Promise<unknown>)(
      config,
      ...rest,
    );
    meddle.after?.(statement);
    return answer;
  };
  return new Proxy(database.pool, {
    get: (target, key) => (key === 'query' ? query : Reflect.get(target, key)) as unknown,
  });
}

test('an attempt longer than the lease silenced a process that was handing shards back', async () => {
  const slow = await Promise.all(Array.from({ length: 16 }, () => addSubscription(database.pool)));
  const quick = await Promise.all(Array.from({ length: 16 }, () => addSubscription(database.pool)));
  for (const one of slow) await addEvents(database.pool, [one], ['slow']);
  const first = slowSink(3 * lease_ms);
  const second = scriptedSink(() => delivered);
  await startOn(first.sink);
  await until(() => first.requests.length === 16);
  await startOn(second.sink);
  let longest_ms = 0;
  const sent = () => first.requests.length + second.requests.length;
  const end_ms = performance.now() + 3 * lease_ms;
  while (performance.now() < end_ms) {
    const before = sent();
    const asked_ms = performance.now();
    const one = quick[Math.floor(Math.random() * quick.length)];
    if (one) await addEvents(database.pool, [one], ['a']);
    await until(() => sent() > before);
    longest_ms = Math.max(longest_ms, performance.now() - asked_ms);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await until(async () => (await shardsHeld()) === '32,32', 10_000);
  const slowAttempts = [...first.requests, ...second.requests].filter(
    (request) => request.event.attributes.subject === 'slow',
  );
  expect(slowAttempts.length).toBe(16);
  expect(longest_ms).toBeLessThan(2 * lease_ms);
}, 30_000);

test('what was in flight at the stop for longer than the lease was sent again by another process', async () => {
  const subscription = await addSubscription(database.pool);
  await addEvents(database.pool, [subscription], ['slow', 'b']);
  const first = slowSink(2.5 * lease_ms);
  const second = scriptedSink(() => delivered);
  const leaving = await startOn(first.sink);
  await until(() => first.requests.length === 1);
  const left = leaving.stop();
  await startOn(second.sink);
  await left;
  await until(() => second.requests.length > 0, 10_000);
  expect(second.requests.map((request) => request.event.attributes.subject)).toEqual(['b']);
}, 30_000);

test('a lease whose news got lost was renewed for ever and worked by nobody', async () => {
  const subscriptions = await Promise.all(
    Array.from({ length: 8 }, () => addSubscription(database.pool)),
  );
  for (const one of subscriptions) await addEvents(database.pool, [one], ['a']);
  let lost = 0;
  const pool = meddling({
    after(statement) {
      if (statement === 'acquire-leases' && lost++ === 0)
        throw new Error('Connection terminated unexpectedly');
    },
  });
  const { sink, requests } = scriptedSink(() => delivered);
  await startOn(sink, pool);
  await until(() => requests.length === 8);
});

test('lanes of shards that could not be handed back were closed for good', async () => {
  const subscriptions = await Promise.all(
    Array.from({ length: 64 }, () => addSubscription(database.pool)),
  );
  for (const one of subscriptions) await addEvents(database.pool, [one], ['a']);
  let failing = false;
  let failures = 0;
  const pool = meddling({
    before(statement) {
      if (!failing || !statement.includes(`lease_until = '-infinity'`)) return;
      failures += 1;
      throw new Error('Connection terminated unexpectedly');
    },
  });
  const first = scriptedSink(() => delivered);
  const second = scriptedSink(() => delivered);
  await startOn(first.sink, pool);
  await until(() => first.requests.length === 64);
  failing = true;
  const other = await startOn(second.sink);
  await until(() => failures > 0);
  failing = false;
  await until(async () => (await shardsHeld()) === '32,32', 10_000);
  await other.stop();
  for (const one of subscriptions) await addEvents(database.pool, [one], ['b']);
  await until(() => {
    const all = [...first.requests, ...second.requests];
    return all.filter((request) => request.event.attributes.subject === 'b').length >= 64;
  });
}, 30_000);

test('what a process had under suspicion when it left was beyond suspicion for the next', async () => {
  const subscription = await addSubscription(database.pool);
  await addEvents(database.pool, [subscription], ['a', 'b']);
  await database.pool.query(
    `insert into suspects select lane_id, seq, subscription_number, lane_id % 64, 5, false
     from deliveries order by seq limit 1`,
  );
  const { sink, requests } = scriptedSink(() => delivered);
  await startOn(sink);
  await until(() => requests.length === 1);
  expect(requests[0]?.event.attributes.subject).toBe('b');
  await until(async () => (await database.pool.query('select 1 from suspects')).rowCount === 0);
});
