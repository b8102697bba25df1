import { expect, test } from 'vitest';
import { systemClock } from '../base/index.ts';
import type { Subscription } from '../subscriptions/index.ts';
import { LaneBook } from './book.ts';
import { SubscriptionCache } from './cache.ts';
import type { LogRow } from './statements.ts';

const subscription = (
  number: number,
  ordering: Subscription['ordering'],
  max_in_flight = 1,
): Subscription =>
  ({
    number,
    ordering,
    max_in_flight,
    version: 1,
    enabled: true,
    verification_state: 'active',
  }) as Subscription;

async function bookWith(...subscriptions: Subscription[]) {
  const cache = new SubscriptionCache(
    { byNumber: async () => subscriptions, changedSince: async () => [] },
    async () => () => {},
  );
  await cache.ensure(subscriptions.map((each) => each.number));
  return new LaneBook(cache, systemClock, () => {});
}

const rows = (lane_id: number, from: number, count: number, subscription_number = 1): LogRow[] =>
  Array.from({ length: count }, (_, n) => ({
    lane_id,
    seq: from + n,
    subscription_number,
    tenant_id: 't',
    event: {
      tenant_id: 't',
      id: `${from + n}`,
      sequence: from + n,
      origin: 'midaz',
      event_type: 'account.created',
      attributes: { subject: `s${(from + n) % 2}` },
      body: null,
    },
    body_deferred: false,
  }));

function openLane(book: LaneBook, id: number) {
  book.touch(id, id % 64, 1, false);
  const [lane] = book.takeWanting(1);
  if (!lane) throw new Error('the lane does not want to be read');
  book.load(lane, { id, tenant_id: 't', settled_through: 0 }, []);
  return lane;
}

test('a lane that turns slow while it is being read leaves no gap', async () => {
  const book = await bookWith(subscription(1, 'fifo'));
  const lane = openLane(book, 7);
  book.admitHeads(lane, rows(7, 1, 8), true);
  book.take('fast');
  lane.reading = true; // a read from 8 on is under way
  book.setSlow(lane, true);
  expect(lane.cursor_seq).toBe(8);
  book.admitHeads(lane, rows(7, 9, 4), false);
  expect(lane.window.length).toBe(12);
});

test('a slow lane gives back what it read ahead, and reads it again', async () => {
  const book = await bookWith(subscription(1, 'fifo'));
  const lane = openLane(book, 7);
  book.admitHeads(lane, rows(7, 1, 8), false);
  const head = book.take('fast');
  book.setSlow(lane, true);
  expect(lane.cursor_seq).toBe(2);
  expect(lane.dirty).toBe(true);
  book.landed(head as never);
  book.leaveLine(head as never);
  expect(book.take('slow')?.seq).toBe(2);
  expect(book.buffered).toBe(0);
});

test('the position stops before the oldest delivery without a durable outcome', async () => {
  const book = await bookWith(subscription(1, 'unordered', 8));
  const lane = openLane(book, 7);
  book.admitHeads(lane, rows(7, 1, 3), false);
  const sent = [book.take('fast'), book.take('fast'), book.take('fast')];
  expect(lane.settledThrough()).toBe(0);
  book.forget(sent[1] as never);
  book.forget(sent[2] as never);
  expect(lane.settledThrough()).toBe(0);
  book.forget(sent[0] as never);
  expect(lane.settledThrough()).toBe(3);
});

test('two subscriptions on one lane: a page that ends between them loses neither', async () => {
  const book = await bookWith(subscription(1, 'unordered', 8), subscription(2, 'unordered', 8));
  const lane = openLane(book, 7);
  book.admitHeads(lane, rows(7, 5, 1, 1), true);
  expect([lane.cursor_seq, lane.cursor_subscription]).toEqual([5, 1]);
  const first = book.take('fast');
  book.forget(first as never);
  expect(lane.settledThrough()).toBe(4);
  book.admitHeads(lane, rows(7, 5, 1, 2), false);
  expect(book.take('fast')?.subscription_number).toBe(2);
});

test('tenants take turns, one delivery each', async () => {
  const book = await bookWith(subscription(1, 'unordered', 100));
  for (const id of [1, 2]) {
    const lane = openLane(book, id);
    lane.tenant_id = `tenant-${id}`;
    book.admitHeads(lane, rows(id, 1, 3), false);
  }
  const order = Array.from({ length: 6 }, () => book.take('fast')?.lane.id);
  expect(order).toEqual([1, 2, 1, 2, 1, 2]);
});

test('an older delivery that comes back goes before the newer head of its line', async () => {
  const book = await bookWith(subscription(1, 'fifo'));
  const lane = openLane(book, 7);
  book.admitHeads(lane, rows(7, 10, 2), false);
  const [row] = rows(7, 3, 1);
  book.admitRetry(
    {
      ...(row as LogRow),
      attempts: 0,
      attempts_before: 0,
      due_ms: 0,
      first_failed_ms: null,
      reason: 'resumed',
      replay_id: null,
    },
    'line',
  );
  expect(book.take('fast')).toBeNull();
  expect(book.take('retry')?.seq).toBe(3);
});
