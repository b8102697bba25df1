import { createTestDatabase, type TestDatabase, until } from '@streaming-hub/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { AttemptResult } from '../attempt/index.ts';
import type { Dispatcher } from './dispatcher.ts';
import {
  addEvents,
  addSubscription,
  delivered,
  dispatcherOn,
  failed,
  scriptedSink,
} from './testing.ts';

let database: TestDatabase;
const running: Dispatcher[] = [];

beforeEach(async () => {
  database = await createTestDatabase();
});

afterEach(async () => {
  await Promise.all(running.splice(0).map((dispatcher) => dispatcher.stop()));
  await database.drop();
});

async function startOn(
  ...parameters: Parameters<typeof dispatcherOn> extends [unknown, unknown, ...infer Rest]
    ? Rest
    : never
) {
  const dispatcher = dispatcherOn(database.pool, database.config, ...parameters);
  running.push(dispatcher);
  await dispatcher.start();
  return dispatcher;
}

async function count(text: string): Promise<number> {
  const answer = await database.pool.query<{ n: string }>(`select count(*) as n from ${text}`);
  return Number(answer.rows[0]?.n);
}

test('delivers what was there before the start and what comes after it, once each', async () => {
  const subscription = await addSubscription(database.pool);
  const before = await addEvents(database.pool, [subscription], ['a', 'b', 'c']);
  const { sink, ids } = scriptedSink(() => delivered);
  await startOn(sink);
  await until(() => ids().length === 3);
  const after = await addEvents(database.pool, [subscription], ['d', 'e']);
  await until(() => ids().length === 5);
  expect(ids()).toEqual([...before, ...after]);
  await until(async () => (await count(`delivery_attempts where outcome = 'delivered'`)) === 5);
});

test('a failing head of a fifo lane holds its line until it succeeds', async () => {
  const subscription = await addSubscription(database.pool, {
    retry_schedule_seconds: [0, 0.05, 0.05, 0.05],
  });
  const events = await addEvents(database.pool, [subscription], ['a', 'b', 'c']);
  let failures = 3;
  const { sink, ids } = scriptedSink(() => (failures-- > 0 ? failed : delivered));
  await startOn(sink);
  await until(() => ids().length === 6);
  expect(ids()).toEqual([events[0], events[0], events[0], events[0], events[1], events[2]]);
  await until(async () => (await count('retries')) === 0);
});

test('after the hold a failing head steps aside to its schedule', async () => {
  const subscription = await addSubscription(database.pool, {
    hold_seconds: 1,
    retry_schedule_seconds: [0, 36_000],
  });
  const events = await addEvents(database.pool, [subscription], ['a', 'b', 'c']);
  const { sink, requests, ids } = scriptedSink((request) =>
    request.event.id === events[0] ? failed : delivered,
  );
  await startOn(sink, { random: () => 0.9 });
  await until(() => ids().length === 3);
  expect(ids()).toEqual(events);
  expect(requests.length).toBe(3);
  await until(
    async () => (await count(`retries where state = 'scheduled' and attempts = 1`)) === 1,
  );
});

test('keyed: a failing key waits, the others go on', async () => {
  const subscription = await addSubscription(database.pool, {
    ordering: 'keyed',
    retry_schedule_seconds: [0, 36_000],
  });
  const events = await addEvents(database.pool, [subscription], ['x', 'y', 'x', 'y', 'z']);
  const { sink, ids } = scriptedSink((request) =>
    request.event.attributes['subject'] === 'x' ? failed : delivered,
  );
  await startOn(sink, { random: () => 0.9 });
  await until(() => ids().length >= 4);
  expect(new Set(ids())).toEqual(new Set([events[0], events[1], events[3], events[4]]));
  expect(ids().indexOf(events[1] as string)).toBeLessThan(ids().indexOf(events[3] as string));
});

test('a used-up schedule ends as a dead letter, and the line goes on', async () => {
  const subscription = await addSubscription(database.pool, { retry_schedule_seconds: [0, 0.01] });
  const events = await addEvents(database.pool, [subscription], ['a', 'b']);
  const { sink, ids } = scriptedSink((request) =>
    request.event.id === events[0] ? failed : delivered,
  );
  await startOn(sink);
  await until(() => ids().length === 3);
  expect(ids()).toEqual([events[0], events[0], events[1]]);
  await until(
    async () => (await count(`dead_letters where reason = 'exhausted' and attempts = 2`)) === 1,
  );
  expect(await count('retries')).toBe(0);
});

test('a redriven dead letter starts a new life and keeps counting its attempts', async () => {
  const subscription = await addSubscription(database.pool, { retry_schedule_seconds: [0] });
  await addEvents(database.pool, [subscription], ['a']);
  let up = false;
  const { sink, requests } = scriptedSink(() => (up ? delivered : failed));
  await startOn(sink);
  await until(async () => (await count('dead_letters')) === 1);
  up = true;
  await database.pool.query(`
    with dead as (update dead_letters set redriven_at = now() returning *)
    insert into retries (lane_id, seq, subscription_number, tenant_id, ce_id, shard, attempts, attempts_before, due_at, replay_id)
    select lane_id, seq, subscription_number, tenant_id, ce_id, lane_id % 64, 0, attempts, now(), ce_id from dead`);
  await database.pool.query(`select pg_notify('hub_retries', '')`);
  await until(() => requests.length === 2);
  expect(requests[1]?.attempt).toBe(2);
  expect(requests[1]?.replay_id).not.toBeNull();
  await until(async () => (await count('retries')) === 0);
});

test('disabling parks, enabling brings everything back in order', async () => {
  const subscription = await addSubscription(database.pool);
  const held: (() => void)[] = [];
  const { sink, ids } = scriptedSink(
    () => new Promise<AttemptResult>((resolve) => held.push(() => resolve(delivered))),
  );
  const events = await addEvents(database.pool, [subscription], ['a', 'b', 'c', 'd']);
  await startOn(sink);
  await until(() => ids().length === 1);
  await database.pool.query('update subscriptions set enabled = false');
  await until(async () => (await count('subscription_matches')) === 0);
  await new Promise((resolve) => setTimeout(resolve, 1_000)); // lets the notification arrive
  held.shift()?.();
  await until(async () => (await count(`retries where state = 'parked'`)) === 3);
  expect(ids()).toEqual([events[0]]);
  await database.pool.query('update subscriptions set enabled = true');
  const later = await addEvents(database.pool, [subscription], ['e']);
  for (let n = 2; n <= 5; n += 1) {
    await until(() => ids().length === n);
    held.shift()?.();
  }
  expect(ids()).toEqual([...events, ...later]);
  await until(async () => (await count('retries')) === 0);
});

test('deleting a subscription cancels what is pending, and records it', async () => {
  const subscription = await addSubscription(database.pool);
  await addEvents(database.pool, [subscription], ['a', 'b']);
  await database.pool.query('update subscriptions set deleted_at = now()');
  const { sink, requests } = scriptedSink(() => delivered);
  await startOn(sink);
  await until(
    async () => (await count(`delivery_attempts where outcome = 'cancelled' and final`)) === 2,
  );
  expect(requests.length).toBe(0);
});

test('410 ends the subscription: disabled as gone, the rest is parked', async () => {
  const subscription = await addSubscription(database.pool);
  await addEvents(database.pool, [subscription], ['a', 'b', 'c']);
  const { sink, requests } = scriptedSink(() => ({ ...failed, outcome: 'gone', status: 410 }));
  await startOn(sink);
  await until(async () => (await count(`retries where state = 'parked'`)) === 2);
  expect(requests.length).toBe(1);
  expect(await count(`subscriptions where not enabled and disabled_reason = 'gone'`)).toBe(1);
  expect(await count(`dead_letters where reason = 'gone'`)).toBe(1);
});

test('unordered: a hundred events reach a slow receiver side by side, bounded by max_in_flight', async () => {
  const subscription = await addSubscription(database.pool, {
    ordering: 'unordered',
    max_in_flight: 10,
  });
  await addEvents(
    database.pool,
    [subscription],
    Array.from({ length: 100 }, (_, n) => `s${n}`),
  );
  let now = 0;
  let most = 0;
  const { sink, requests } = scriptedSink(async () => {
    now += 1;
    most = Math.max(most, now);
    await new Promise((resolve) => setTimeout(resolve, 5));
    now -= 1;
    return delivered;
  });
  await startOn(sink);
  await until(() => requests.length === 100);
  expect(most).toBe(10);
  expect(new Set(requests.map((request) => request.event.id)).size).toBe(100);
});

test('a huge tenant does not delay another one by more than a turn', async () => {
  const many = await addSubscription(database.pool, {
    ordering: 'unordered',
    tenant_id: 'huge',
    max_in_flight: 128,
  });
  await addEvents(
    database.pool,
    [many],
    Array.from({ length: 1000 }, (_, n) => `s${n}`),
  );
  const one = await addSubscription(database.pool, { tenant_id: 'small' });
  const release: (() => void)[] = [];
  let open = false;
  const { sink, requests } = scriptedSink(() =>
    open
      ? delivered
      : new Promise<AttemptResult>((resolve) => release.push(() => resolve(delivered))),
  );
  await startOn(sink);
  await until(() => requests.length === 128);
  await addEvents(database.pool, [one], ['a']);
  await new Promise((resolve) => setTimeout(resolve, 300)); // its head is read meanwhile
  release.shift()?.();
  await until(() => requests.length === 129);
  expect(requests[128]?.event.tenant_id).toBe('small');
  open = true;
  for (const done of release.splice(0)) done();
});

test('two processes share the lanes; when one leaves the other goes on', async () => {
  const subscriptions = await Promise.all(
    Array.from({ length: 20 }, () => addSubscription(database.pool)),
  );
  const a = scriptedSink(() => delivered);
  const b = scriptedSink(() => delivered);
  const first = await startOn(a.sink, { lease_ms: 1_500 });
  await startOn(b.sink, { lease_ms: 1_500 });
  const shards = async () =>
    (
      await database.pool.query<{ n: string }>(
        'select count(*) as n from shards where owner is not null group by owner',
      )
    ).rows.map((row) => Number(row.n));
  await until(async () => (await shards()).join() === '32,32', 10_000);
  await addEvents(database.pool, subscriptions, ['a', 'b', 'c']);
  await until(() => a.requests.length + b.requests.length === 60);
  expect(a.requests.length).toBeGreaterThan(0);
  expect(b.requests.length).toBeGreaterThan(0);
  await first.stop();
  await until(async () => (await shards()).join() === '64', 10_000);
  await addEvents(database.pool, subscriptions, ['d']);
  await until(() => a.requests.length + b.requests.length === 80);
});

test('a body of 1 MiB is read only when it is sent', async () => {
  const subscription = await addSubscription(database.pool);
  await addEvents(database.pool, [subscription], ['a']);
  await database.pool.query(
    `update event_inbox set body = convert_to(repeat('x', 1048576), 'UTF8')`,
  );
  const { sink, requests } = scriptedSink(() => delivered);
  await startOn(sink);
  await until(() => requests.length === 1);
  expect(requests[0]?.event.body?.length).toBe(1_048_576);
});

test('the rate that a receiver allowed in the handshake is obeyed', async () => {
  const subscription = await addSubscription(database.pool, {
    ordering: 'unordered',
    allowed_rate_per_minute: 600,
  });
  await addEvents(database.pool, [subscription], ['a', 'b', 'c', 'd', 'e']);
  const at_ms: number[] = [];
  const { sink } = scriptedSink(() => {
    at_ms.push(performance.now());
    return delivered;
  });
  await startOn(sink);
  await until(() => at_ms.length === 5);
  const gaps_ms = at_ms.slice(1).map((time, n) => time - (at_ms[n] ?? 0));
  expect(Math.min(...gaps_ms)).toBeGreaterThan(95);
});
