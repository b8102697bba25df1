import { until } from '@streaming-hub/testkit';
import { expect, test } from 'vitest';
import type { AttemptResult } from '../attempt/index.ts';
import {
  addEvents,
  addSubscription,
  delivered,
  hanging,
  meddledPool,
  scriptedSink,
  useLanes,
} from './testing.ts';

/** What one process leaves behind, and what the next one makes of it. */

const lanes = useLanes();

/** Deliveries beyond the saved position of their lane. */
const unsettled = () =>
  lanes.count('deliveries d join lanes l on l.id = d.lane_id where d.seq > l.settled_through');

test('parked deliveries stayed behind when their subscription was switched on while no process ran', async () => {
  const subscription = await addSubscription(lanes.pool);
  await lanes.pool.query('update subscriptions set enabled = false');
  const events = await addEvents(lanes.pool, [subscription], ['a', 'b', 'c']);
  const { sink, ids } = scriptedSink(() => delivered);
  const first = await lanes.start(sink);
  await until(async () => (await lanes.count(`retries where state = 'parked'`)) === 3);
  await first.stop();
  expect(await unsettled()).toBe(0);
  await lanes.pool.query('update subscriptions set enabled = true');
  await lanes.start(sink);
  await until(() => ids().length === 3);
  expect(ids()).toEqual(events);
});

test('a suspect was sent after its turn had come although its subscription was deleted meanwhile', async () => {
  const subscriptions = [await addSubscription(lanes.pool), await addSubscription(lanes.pool)];
  await addEvents(lanes.pool, subscriptions, ['a']);
  await lanes.pool.query(
    'insert into suspects select lane_id, seq, subscription_number, lane_id % 64, 4, false from deliveries',
  );
  await lanes.pool.query(
    `update shards set lease_until = now() - interval '1 s', owner = gen_random_uuid()`,
  );
  let release = () => {};
  const { sink, requests } = scriptedSink(
    () => new Promise<AttemptResult>((resolve) => (release = () => resolve(delivered))),
  );
  const dispatcher = await lanes.start(sink);
  await until(() => requests.length === 1 && dispatcher.stats().in_flight === 2);
  await lanes.change('deleted_at = now()');
  release();
  await until(
    async () => (await lanes.count(`delivery_attempts where outcome = 'cancelled'`)) === 1,
  );
  expect(requests.length).toBe(1);
});

test('a position that could not be saved once was taken for saved', async () => {
  const subscription = await addSubscription(lanes.pool);
  await addEvents(lanes.pool, [subscription], ['a', 'b']);
  const { sink, requests } = scriptedSink(() => delivered);
  let failures = 0;
  const pool = meddledPool(lanes.pool, async (statement, run) => {
    if (statement === 'save-positions' && failures++ === 0)
      throw new Error('Connection terminated unexpectedly');
    return run();
  });
  const dispatcher = await lanes.start(sink, {}, pool);
  await until(() => failures === 1);
  await dispatcher.stop();
  expect(requests.length).toBe(2);
  expect(await unsettled()).toBe(0);
});

test('an attempt went on after its lease had run out, and the next owner made another beside it', async () => {
  const subscription = await addSubscription(lanes.pool);
  await addEvents(lanes.pool, [subscription], ['a', 'b']);
  let cutOff_ms: number | null = null;
  const first = scriptedSink((_, signal) => {
    signal.addEventListener('abort', () => (cutOff_ms = performance.now()));
    return hanging(signal);
  });
  let isSilent = false;
  let wake = () => {};
  const silence = new Promise<void>((resolve) => (wake = resolve));
  const pool = meddledPool(lanes.pool, async (statement, run) => {
    if (!isSilent || statement !== 'renew-leases') return run();
    await silence;
    throw new Error('Connection terminated unexpectedly');
  });
  await lanes.start(first.sink, { lease_ms: 1_000, drain_ms: 100 }, pool);
  await until(() => first.requests.length === 1);
  isSilent = true;
  let begun_ms: number | null = null;
  const second = scriptedSink(() => {
    begun_ms ??= performance.now();
    return delivered;
  });
  await lanes.start(second.sink, { lease_ms: 1_000 });
  await until(() => second.requests.length === 2);
  wake();
  expect(cutOff_ms).not.toBeNull();
  expect(Number(begun_ms)).toBeGreaterThan(Number(cutOff_ms));
  expect(second.requests.map(({ event }) => event.attributes.subject)).toEqual(['a', 'b']);
  expect(first.requests.length).toBe(1);
});
