import { until } from '@streaming-hub/testkit';
import { expect, test } from 'vitest';
import {
  addEvents,
  addSubscription,
  delivered,
  failed,
  hanging,
  hurriedClock,
  scriptedSink,
  useLanes,
} from './testing.ts';

/** Destinations that fail or hang, and what they must not do to the others. */

const lanes = useLanes();

const farRetries = [0, 36_000, 36_000];
/** Long leases, so that a hurried clock does not outrun them. */
const hurried = { clock: hurriedClock(10), lease_ms: 60_000, drain_ms: 100 };

const addSubscriptions = (count: number, parts: Parameters<typeof addSubscription>[1] = {}) =>
  Promise.all(Array.from({ length: count }, () => addSubscription(lanes.pool, parts)));

const repeated = (subject: string, count: number) => Array.from({ length: count }, () => subject);

test('what stood behind failing heads filled the memory, and nothing else was read', async () => {
  const bad = await addSubscriptions(150, {
    tenant_id: 'bad',
    retry_schedule_seconds: farRetries,
  });
  const good = await addSubscription(lanes.pool, { tenant_id: 'good' });
  await addEvents(lanes.pool, bad, repeated('s', 30));
  const { sink, requests } = scriptedSink(({ subscription }) =>
    subscription.tenant_id === 'good' ? delivered : failed,
  );
  const dispatcher = await lanes.start(sink, { random: () => 0.9 });
  await until(() => requests.length === 150);
  await until(() => dispatcher.stats().buffered === 0);
  await addEvents(lanes.pool, [good], ['a']);
  await until(() => requests.length === 151);
  expect(requests[150]?.subscription.number).toBe(good.number);
});

test('keyed: what stood behind a failing key hid the other keys of its lane', async () => {
  const subscription = await addSubscription(lanes.pool, {
    ordering: 'keyed',
    hold_seconds: null,
    retry_schedule_seconds: farRetries,
  });
  await addEvents(lanes.pool, [subscription], [...repeated('x', 150), 'y']);
  const { sink, requests } = scriptedSink(({ event }) =>
    event.attributes.subject === 'y' ? delivered : failed,
  );
  await lanes.start(sink, { random: () => 0.9 });
  await until(() => requests.length === 2);
  expect(requests.map(({ event }) => event.attributes.subject)).toEqual(['x', 'y']);
});

test('retries that hung kept the slots of retries for themselves', async () => {
  const bad = await addSubscriptions(40, { tenant_id: 'bad' });
  await addEvents(lanes.pool, bad, ['s']);
  await lanes.addRetries('status', 1);
  const good = await addSubscription(lanes.pool, { tenant_id: 'good' });
  let failures = 1;
  const { sink, requests } = scriptedSink(({ subscription }, signal) => {
    if (subscription.tenant_id === 'bad') return hanging(signal);
    return failures-- > 0 ? failed : delivered;
  });
  const dispatcher = await lanes.start(sink, hurried);
  await until(() => dispatcher.stats().in_flight >= 32);
  const events = await addEvents(lanes.pool, [good], ['a', 'b', 'c']);
  const sent = () => requests.filter(({ subscription }) => subscription.number === good.number);
  await until(() => sent().length === 4);
  expect(sent().map(({ event }) => event.id)).toEqual([events[0], ...events]);
});

test('destinations that hung took all slots there are, and a healthy one waited for them', async () => {
  const bad = await addSubscriptions(600, { tenant_id: 'bad' });
  const good = await addSubscription(lanes.pool, { tenant_id: 'good' });
  await addEvents(lanes.pool, bad, ['s']);
  const { sink, requests } = scriptedSink(({ subscription }, signal) =>
    subscription.tenant_id === 'good' ? delivered : hanging(signal),
  );
  const dispatcher = await lanes.start(sink, hurried);
  await until(() => dispatcher.stats().in_flight >= 512);
  await addEvents(lanes.pool, [good], ['a']);
  await until(() => requests.some(({ subscription }) => subscription.number === good.number));
  await until(() => dispatcher.stats().in_flight === 600);
});
