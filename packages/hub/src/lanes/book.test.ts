import { expect, test } from 'vitest';
import { systemClock } from '../base/index.ts';
import type { Subscription } from '../subscriptions/index.ts';
import { LaneBook } from './book.ts';
import { SubscriptionCache } from './cache.ts';
import type { Delivery, Lane } from './model.ts';
import type { LogRow, RetryRow } from './statements.ts';

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

const retryOf = (row: LogRow | undefined): RetryRow => ({
  ...(row as LogRow),
  attempts: 1,
  attempts_before: 0,
  due_ms: 0,
  first_failed_ms: null,
  reason: 'status',
  replay_id: null,
});

const withSubject = (row: LogRow, subject: string): LogRow => ({
  ...row,
  event: row.event && { ...row.event, attributes: { subject } },
});

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
  book.admitRetry(retryOf(rows(7, 3, 1)[0]), 'line');
  expect(book.take('fast')).toBeNull();
  expect(book.take('retry')?.seq).toBe(3);
});

/** Reads the lane as the loader would, as long as it wants to be read; answers how many pages that took. */
function readAll(book: LaneBook, lane: Lane, log: readonly LogRow[]): number {
  for (let pages = 0; pages < 100; pages += 1) {
    if (!lane.reading && book.takeWanting(1).length === 0) return pages;
    const page = log.filter((row) => row.seq > lane.cursor_seq).slice(0, lane.read_size);
    book.admitHeads(lane, page, page.length >= lane.read_size);
  }
  throw new Error('the lane wants to be read without end');
}

function fail(book: LaneBook, delivery: Delivery | null): void {
  if (!delivery) throw new Error('there is nothing to send');
  book.landed(delivery);
  book.waits(delivery);
  book.track(delivery);
  delivery.stored = true;
}

test('what an earlier owner had finished was sent again after its lane had turned slow', async () => {
  const book = await bookWith(subscription(1, 'unordered', 2));
  book.touch(7, 7, 1, false);
  const [lane] = book.takeWanting(1) as [Lane];
  const finished = { lane_id: 7, seq: 3, subscription_number: 1, attempts: null };
  book.load(lane, { id: 7, tenant_id: 't', settled_through: 0 }, [finished]);
  const log = rows(7, 1, 4);
  book.admitHeads(lane, log, false);
  book.take('fast');
  book.setSlow(lane, true);
  expect(lane.cursor_seq).toBe(2);
  readAll(book, lane, log);
  const left: number[] = [];
  for (let entry = lane.window.shift(); entry; entry = lane.window.shift()) left.push(entry.seq);
  expect(left).toEqual([1, 2, 4]);
});

test('two of a line were on their way when several older ones came back in front of the first', async () => {
  const book = await bookWith(subscription(1, 'fifo'), subscription(2, 'fifo'));
  const lane = openLane(book, 7);
  book.admitHeads(lane, rows(7, 10, 1, 2), false);
  const sent = book.take('fast');
  for (const row of rows(7, 3, 2)) book.admitRetry(retryOf(row), 'line');
  expect(book.take('retry')).toBeNull();
  book.landed(sent as Delivery);
  book.leaveLine(sent as Delivery);
  expect(book.take('retry')?.seq).toBe(3);
  expect(book.take('retry')).toBeNull();
});

test('a lane that was lost and turned slow afterwards gave back its memory twice', async () => {
  const book = await bookWith(subscription(1, 'fifo'));
  const lane = openLane(book, 7);
  book.admitHeads(lane, rows(7, 1, 60), false);
  book.take('fast');
  expect(book.buffered).toBe(59);
  book.drop(new Set([7]));
  expect(book.buffered).toBe(0);
  book.setSlow(lane, true);
  expect(book.buffered).toBe(0);
});

test('the end of a delivery of a lost lane made its successor be loaded a second time', async () => {
  const book = await bookWith(subscription(1, 'unordered', 4));
  const [row] = rows(7, 3, 1);
  const takeOver = () => {
    openLane(book, 7);
    const delivery = book.admitRetry(retryOf(row), 'aside');
    expect(book.take('retry')).toBe(delivery);
    return delivery as Delivery;
  };
  const older = takeOver();
  book.drop(new Set([7]));
  const younger = takeOver();
  book.forget(older);
  book.finishedLately.clear();
  expect(younger.state).toBe('sending');
  expect(book.admitRetry(retryOf(row), 'aside')).toBeNull();
});

test('a lane with more behind a failing key than fits was read over and over', async () => {
  const book = await bookWith(subscription(1, 'keyed', 16));
  const lane = openLane(book, 7);
  const log = rows(7, 1, 1_000).map((row) => withSubject(row, 'x'));
  book.admitHeads(lane, log.slice(0, 4), true);
  fail(book, book.take('fast'));
  expect(readAll(book, lane, log)).toBeLessThan(10);
  expect(lane.shelved).toBeGreaterThanOrEqual(256);
  expect(lane.shelved).toBeLessThanOrEqual(256 + 128);
  expect(book.buffered).toBe(0);
});

test('failing keys without end were all kept in memory', async () => {
  const book = await bookWith(subscription(1, 'keyed', 16));
  const lane = openLane(book, 7);
  const log = rows(7, 1, 2_000).map((row) => withSubject(row, `key-${row.seq}`));
  book.admitHeads(lane, log.slice(0, 4), true);
  let sent = 0;
  for (let next = book.take('fast'); next; next = book.take('fast')) {
    sent += 1;
    fail(book, next);
    readAll(book, lane, log);
  }
  expect(sent).toBeGreaterThanOrEqual(256);
  expect(sent).toBeLessThanOrEqual(256 + 128);
});

test('a lane with nothing in memory was not read while others filled it', async () => {
  const book = await bookWith(subscription(1, 'unordered', 1));
  for (let id = 1; id <= 20; id += 1) {
    const lane = openLane(book, id);
    book.admitHeads(lane, rows(id, 1, 100), true);
  }
  expect(book.buffered).toBe(2_000);
  book.touch(50, 50, 1, false);
  expect(book.hungry()).toBe(true);
  const taken = book.takeWanting(10);
  expect(taken.map((lane) => lane.id)).toEqual([50]);
  expect(taken[0]?.read_size).toBe(4);
});
