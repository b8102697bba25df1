import { until } from '@streaming-hub/testkit';
import { expect, test } from 'vitest';
import type { AttemptResult } from '../attempt/index.ts';
import { systemClock } from '../base/index.ts';
import {
  addEvents,
  addSubscription,
  aWhile,
  delivered,
  failed,
  meddledPool,
  scriptedSink,
  useLanes,
} from './testing.ts';

/** Lines that are held, subscriptions that are switched off and on, and the order in which it all goes on. */

const lanes = useLanes();

const farRetries = [0, 36_000, 36_000];

test.each([
  ['deleted', 'deleted_at = now()', `delivery_attempts where outcome = 'cancelled'`],
  ['switched off', 'enabled = false', `retries where state = 'parked'`],
])(
  'a failed head whose subscription was %s went on holding the line of its neighbours',
  async (_, change, ending) => {
    const address = 'http://127.0.0.1/same';
    const ended = await addSubscription(lanes.pool, {
      address,
      hold_seconds: null,
      retry_schedule_seconds: farRetries,
    });
    const neighbour = await addSubscription(lanes.pool, { address });
    await addEvents(lanes.pool, [ended], ['a']);
    const { sink, requests } = scriptedSink(({ subscription }) =>
      subscription.number === ended.number ? failed : delivered,
    );
    await lanes.start(sink, { random: () => 0.9 });
    await until(async () => (await lanes.count('retries')) === 1);
    await lanes.change(change, ended.number);
    await addEvents(lanes.pool, [neighbour], ['b']);
    await until(() => requests.length === 2);
    expect(requests[1]?.subscription.number).toBe(neighbour.number);
    await until(async () => (await lanes.count(ending)) === 1);
  },
);

test('a delivery that had failed before it was parked did not hold its line when it came back', async () => {
  const subscription = await addSubscription(lanes.pool, {
    hold_seconds: 30,
    retry_schedule_seconds: farRetries,
  });
  const [first, second] = await addEvents(lanes.pool, [subscription], ['a', 'b']);
  const { sink, ids } = scriptedSink(({ event }) => (event.id === first ? failed : delivered));
  let later_ms = 0;
  const clock = { ...systemClock, now_ms: () => systemClock.now_ms() + later_ms };
  await lanes.start(sink, { clock, random: () => 0.9 });
  await until(async () => (await lanes.count('retries')) === 1);
  await lanes.change('enabled = false');
  await until(async () => (await lanes.count(`retries where state = 'parked'`)) === 2);
  later_ms = 3_600_000;
  await lanes.change('enabled = true');
  await until(async () => (await lanes.count(`delivery_attempts where outcome = 'failed'`)) === 2);
  await aWhile();
  expect(ids()).toEqual([first, first]);
  expect(ids()).not.toContain(second);
});

test('a failure of the hub itself ended the hold, and the line went on without its head', async () => {
  const subscription = await addSubscription(lanes.pool, { hold_seconds: 0 });
  const events = await addEvents(lanes.pool, [subscription], ['a', 'b']);
  let faults = 1;
  const { sink, ids } = scriptedSink(() => {
    if (faults-- > 0) throw new Error('out of memory');
    return delivered;
  });
  await lanes.start(sink, { random: () => 0.01 });
  await until(() => ids().length === 3);
  expect(ids()).toEqual([events[0], ...events]);
});

test('a new event overtook the parked ones while they were still being looked for', async () => {
  const subscription = await addSubscription(lanes.pool);
  let release = () => {};
  const { sink, ids, requests } = scriptedSink(() =>
    requests.length > 1
      ? delivered
      : new Promise<AttemptResult>((resolve) => (release = () => resolve(delivered))),
  );
  let delayed = 0;
  const pool = meddledPool(lanes.pool, async (statement, run) => {
    const answer = await run();
    if (statement !== 'lanes-resuming') return answer;
    delayed += 1;
    await aWhile();
    return answer;
  });
  const events = await addEvents(lanes.pool, [subscription], ['a', 'b', 'c']);
  await lanes.start(sink, {}, pool);
  await until(() => requests.length === 1);
  await lanes.change('enabled = false');
  release();
  await until(async () => (await lanes.count(`retries where state = 'parked'`)) === 2);
  const before = delayed;
  await lanes.change('enabled = true');
  const later = await addEvents(lanes.pool, [subscription], ['new']);
  await until(() => ids().length === 4);
  expect(delayed).toBeGreaterThan(before);
  expect(ids()).toEqual([...events, ...later]);
});

test('what was about to be parked when its subscription was deleted stayed parked for good', async () => {
  const subscription = await addSubscription(lanes.pool);
  await lanes.pool.query('update subscriptions set enabled = false');
  await addEvents(lanes.pool, [subscription], ['a', 'b']);
  const { sink, requests } = scriptedSink(() => delivered);
  const pool = meddledPool(lanes.pool, async (statement, run) => {
    if (statement === 'record-changes')
      await lanes.pool.query(
        'update subscriptions set deleted_at = now() where deleted_at is null',
      );
    return run();
  });
  await lanes.start(sink, {}, pool);
  await until(
    async () =>
      (await lanes.count(`delivery_attempts where outcome = 'cancelled' and final`)) === 2,
  );
  expect(await lanes.count('retries')).toBe(0);
  expect(requests.length).toBe(0);
});

test.each([
  ['a shorter hold', 'hold_seconds = 0'],
  ['another ordering', `ordering = 'unordered'`],
])('a line that waited behind a failing head did not hear of %s', async (_, change) => {
  const subscription = await addSubscription(lanes.pool, {
    hold_seconds: null,
    retry_schedule_seconds: farRetries,
  });
  const [first, ...others] = await addEvents(lanes.pool, [subscription], ['a', 'b', 'c']);
  const { sink, ids } = scriptedSink(({ event }) => (event.id === first ? failed : delivered));
  await lanes.start(sink, { random: () => 0.9 });
  await until(async () => (await lanes.count('retries')) === 1);
  await lanes.change(change);
  await until(() => ids().length === 3);
  expect(ids()).toEqual([first, ...others]);
});
