import { createTestDatabase, type TestDatabase } from '@streaming-hub/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  batchOf,
  countOf,
  handlerOn,
  recordAt,
  recordsFrom,
  storedPosition,
  subscribe,
  topic,
} from './testing.ts';

let db: TestDatabase;

beforeEach(async () => {
  db = await createTestDatabase();
});
afterEach(() => db.drop());

const key = `${topic}/0`;
const partition = { topic, partition: 0 };
const ten = (from: number) =>
  recordsFrom(
    from,
    Array.from({ length: 10 }, () => ({})),
  );

test('after a restart the stored position wins over what the stream offers again', async () => {
  const records = ten(100);
  await handlerOn(db.pool).onBatch(batchOf(records));
  const restarted = handlerOn(db.pool);
  expect(await restarted.loadPositions([partition, { topic, partition: 1 }])).toEqual(
    new Map([[key, 110]]),
  );
  expect(await restarted.onBatch(batchOf(records))).toBe(110);
  expect(restarted.counts).toEqual({ faults: 1 });
  expect(await countOf(db.pool, 'event_inbox')).toBe(10);
});

test('of a batch that begins before the stored position only the rest is taken', async () => {
  const records = ten(0);
  const handler = handlerOn(db.pool);
  await handler.onBatch(batchOf(records.slice(0, 4)));
  expect(await handler.onBatch(batchOf(records))).toBe(10);
  expect(handler.counts['stored']).toBe(10);
  expect(handler.counts['duplicates']).toBeUndefined();
});

test('offsets may have gaps', async () => {
  const handler = handlerOn(db.pool);
  expect(await handler.onBatch(batchOf([recordAt(5), recordAt(9)]))).toBe(10);
  expect(await handler.onBatch(batchOf([recordAt(14)]))).toBe(15);
  expect(await storedPosition(db.pool)).toBe(15);
});

test('two processes with one partition: one writes, the other is told where to go on', async () => {
  await subscribe(db.pool);
  const records = ten(0);
  const [a, b] = [handlerOn(db.pool), handlerOn(db.pool)];
  const positions = await Promise.all([
    a.onBatch(batchOf(records)),
    b.onBatch(batchOf(records.slice(0, 6))),
  ]);
  const stored = await storedPosition(db.pool);
  expect(positions).toEqual([stored, stored]);
  expect((a.counts['batches'] ?? 0) + (b.counts['batches'] ?? 0)).toBe(1);
  expect((a.counts['faults'] ?? 0) + (b.counts['faults'] ?? 0)).toBe(1);
  expect(await countOf(db.pool, 'event_inbox')).toBe(stored);
});

test('two processes racing through one partition store every record once, in order', async () => {
  await subscribe(db.pool);
  const records = recordsFrom(
    0,
    Array.from({ length: 300 }, () => ({})),
  );
  const race = async (size: number) => {
    const handler = handlerOn(db.pool);
    let position = 0;
    while (position < records.length) {
      position = await handler.onBatch(batchOf(records.slice(position, position + size)));
    }
    return handler.counts;
  };
  const counts = await Promise.all([race(7), race(10), race(23)]);
  expect(counts.reduce((sum, count) => sum + (count['stored'] ?? 0), 0)).toBe(300);
  expect(counts.reduce((sum, count) => sum + (count['duplicates'] ?? 0), 0)).toBe(0);
  expect(await countOf(db.pool, 'event_inbox')).toBe(300);
  expect(await countOf(db.pool, 'deliveries')).toBe(300);
  const rows = await db.pool.query<{ ce_id: string }>('select ce_id from event_inbox order by seq');
  const ids = records.map((record) =>
    record.headers.find(([name]) => name.toString() === 'ce-id')?.[1].toString(),
  );
  expect(rows.rows.map((row) => row.ce_id)).toEqual(ids);
});

test('a process that is ahead of the database goes back to the stored position', async () => {
  const handler = handlerOn(db.pool);
  await handler.onBatch(batchOf(ten(0)));
  await db.pool.query('insert into ingested_batches values ($1, 0, 1000, 4)', [topic]);
  expect(await handler.onBatch(batchOf(ten(10)))).toBe(4);
  expect(await storedPosition(db.pool)).toBe(4);
});

test('a stream that lost its stored position (topic made anew) is read from what it has', async () => {
  const handler = handlerOn(db.pool);
  await handler.onBatch(batchOf(ten(500)));
  const anew = ten(0);
  expect(await handler.onBatch(batchOf(anew))).toBe(510);
  expect(await handler.onBatch(batchOf(anew))).toBe(10);
  expect(await storedPosition(db.pool)).toBe(10);
  expect(handler.counts['stored']).toBe(20);
});

test('nothing is written for a partition that has been taken away', async () => {
  const gone = AbortSignal.abort(new Error('revoked'));
  await expect(handlerOn(db.pool).onBatch(batchOf(ten(0), gone))).rejects.toThrow('revoked');
  expect(await storedPosition(db.pool)).toBeUndefined();
});

test('the gate of the process is waited for before anything is written', async () => {
  const opened = Promise.withResolvers<void>();
  const order: string[] = [];
  const handler = handlerOn(db.pool, {
    gate: async () => {
      order.push('gate');
      await opened.promise;
    },
  });
  const running = handler.onBatch(batchOf(ten(0))).then(() => order.push('written'));
  expect(await storedPosition(db.pool)).toBeUndefined();
  order.push('open');
  opened.resolve();
  await running;
  expect(order).toEqual(['gate', 'open', 'written']);
});

test("of a partition's batches only the last few hundred are kept, its position always", async () => {
  const handler = handlerOn(db.pool);
  const system = { attributes: { systemevent: 'true' } };
  for (let offset = 0; offset < 600; offset++) {
    await handler.onBatch(batchOf([recordAt(offset, system)]));
  }
  await handler.onBatch(batchOf([recordAt(0, { ...system, partition: 3 })]));
  const kept = await db.pool.query('select count(*)::integer as n from ingested_batches');
  expect(kept.rows[0]?.n).toBeLessThanOrEqual(512);
  const positions = await db.pool.query(
    'select topic, partition, next_offset from stream_positions order by partition',
  );
  expect(positions.rows).toEqual([
    { topic, partition: 0, next_offset: 600 },
    { topic, partition: 3, next_offset: 1 },
  ]);
  expect(await handlerOn(db.pool).loadPositions([partition, { topic, partition: 9 }])).toEqual(
    new Map([[key, 600]]),
  );
});

test('a partition that is taken away does not wait for a closed gate', async () => {
  const revoke = new AbortController();
  const handler = handlerOn(db.pool, { gate: () => new Promise(() => {}) });
  const running = handler.onBatch(batchOf(ten(0), revoke.signal));
  revoke.abort(new Error('revoked'));
  await expect(running).rejects.toThrow('revoked');
  expect(await storedPosition(db.pool)).toBeUndefined();
});
