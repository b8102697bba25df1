import { startFaultProxy, until } from '@streaming-hub/testkit';
import { expect, test } from 'vitest';
import { systemClock } from '../base/index.ts';
import { openPool } from '../store/index.ts';
import {
  addEvents,
  addSubscription,
  aWhile,
  delivered,
  dispatcherOn,
  failed,
  scriptedSink,
  useLanes,
} from './testing.ts';

/** A database that refuses or says nothing, and a clock that is put back. */

const lanes = useLanes();

test('one outcome that the database refused kept all others from being stored', async () => {
  const refused = await addSubscription(lanes.pool);
  const others = await Promise.all(Array.from({ length: 5 }, () => addSubscription(lanes.pool)));
  await lanes.pool.query(
    `alter table delivery_attempts add constraint refuses check (subscription_number <> ${refused.number})`,
  );
  await addEvents(lanes.pool, [refused, ...others], ['a', 'b']);
  const { sink, requests } = scriptedSink(() => delivered);
  const faults: string[] = [];
  const dispatcher = await lanes.start(sink, { onFault: (fault) => faults.push(fault.message) });
  await until(async () => (await lanes.count('delivery_attempts')) === 10);
  await until(() => dispatcher.stats().unrecorded === 0);
  expect(requests.length).toBe(12);
  expect(faults).toEqual([
    'the database refuses to store an outcome',
    'the database refuses to store an outcome',
  ]);
});

test('a stop did not end while Postgres said nothing', async () => {
  const url = new URL(lanes.database.dsn);
  const proxy = await startFaultProxy(Number(url.port));
  url.port = String(proxy.port);
  const connection = { connectionString: url.href };
  const pool = openPool(connection, { application_name: 'test' });
  const { sink, requests } = scriptedSink(() => delivered);
  const dispatcher = dispatcherOn(pool, connection, sink, { drain_ms: 0 });
  await dispatcher.start();
  const subscription = await addSubscription(lanes.pool);
  await addEvents(lanes.pool, [subscription], ['a']);
  await until(() => requests.length === 1);
  proxy.set({ mode: 'blackhole' });
  let hasStopped = false;
  void dispatcher.stop().then(() => (hasStopped = true));
  await until(() => hasStopped);
  await proxy.close();
  await pool.end();
});

test('due retries were not looked for after the wall clock had been put back', async () => {
  const subscription = await addSubscription(lanes.pool, {
    ordering: 'unordered',
    retry_schedule_seconds: [0, 1, 1],
  });
  let back_ms = 0;
  const clock = { ...systemClock, now_ms: () => systemClock.now_ms() - back_ms };
  const { sink, requests } = scriptedSink(() => (requests.length > 1 ? delivered : failed));
  await lanes.start(sink, { clock, random: () => 0.9 });
  await aWhile(); // the notifications are listened to, and the first looks are over
  await addEvents(lanes.pool, [subscription], ['a']);
  await until(async () => (await lanes.count('retries')) === 1);
  back_ms = 600_000;
  await lanes.pool.query('update retries set due_at = now()');
  await until(() => requests.length === 2);
});
