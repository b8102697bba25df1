import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createTestDatabase, type TestDatabase, until } from '@streaming-hub/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ensurePartitions, migrate, openPool, startEmbeddedPostgres } from '../store/index.ts';
import {
  batchOf,
  countOf,
  handlerOn,
  quiet,
  recordsFrom,
  rowsOf,
  storedPosition,
  subscribe,
} from './testing.ts';

let db: TestDatabase;

beforeEach(async () => {
  db = await createTestDatabase();
});
afterEach(() => db.drop());

const records = recordsFrom(
  0,
  Array.from({ length: 400 }, () => ({})),
);

/** Offers the records as a stream would: from the returned position on, the same ones again after a failure. */
async function drain(
  handler: ReturnType<typeof handlerOn>,
  failed: () => Promise<void>,
): Promise<number> {
  let position = 0;
  let failures = 0;
  while (position < records.length) {
    try {
      position = await handler.onBatch(batchOf(records.slice(position, position + 20)));
    } catch {
      failures++;
      await failed();
    }
  }
  return failures;
}

test('connections killed while a batch runs: nothing lost, nothing twice, no record set aside', async () => {
  await subscribe(db.pool);
  // Slow commits, so that many kills hit a running transaction.
  await db.pool.query(`
    create function dawdle() returns trigger language plpgsql as $$ begin perform pg_sleep(0.01); return null; end $$;
    create constraint trigger dawdle after insert on batch_log
      deferrable initially deferred for each row execute function dawdle()`);
  const ingesting = openPool(db.config, { application_name: 'ingest-outage', max: 2 });
  const handler = handlerOn(ingesting);
  const kill = `
    select pg_terminate_backend(pid) from pg_stat_activity
    where application_name = 'ingest-outage' and state = 'active'`;
  const killer = (async () => {
    for (let kills = 0; kills < 12; kills++) {
      await until(async () => (await db.pool.query(kill)).rowCount);
      const before = await storedPosition(db.pool);
      await until(async () => (await storedPosition(db.pool)) !== before);
    }
  })();
  const failures = await drain(handler, async () => {});
  await killer;
  await ingesting.end();
  expect(failures).toBeGreaterThan(5);
  expect(await storedPosition(db.pool)).toBe(400);
  expect(await countOf(db.pool, 'event_inbox')).toBe(400);
  expect(await countOf(db.pool, 'deliveries')).toBe(400);
  expect(await countOf(db.pool, 'quarantine')).toBe(0);
});

test('a statement that does not answer in time is given up on, and its outcome found out afterwards', async () => {
  const holder = await db.pool.connect();
  await holder.query('begin');
  await holder.query('select pg_advisory_xact_lock(1398096, 1)');
  const handler = handlerOn(db.pool, {
    limits: {
      batch_records_max: 500,
      batch_bytes_max: 1e6,
      buffered_bytes_max: 1e6,
      statement_timeout_ms: 50,
    },
  });
  const batch = batchOf(records.slice(0, 5));
  await expect(handler.onBatch(batch)).rejects.toThrow('timeout');
  await holder.query('commit');
  holder.release();
  await until(
    async () => (await storedPosition(db.pool)) === 5 || (await handler.onBatch(batch)) === 5,
  );
  expect(await handler.onBatch(batch)).toBe(5);
  expect(await countOf(db.pool, 'event_inbox')).toBe(5);
});

test('the database restarts in the middle of ingest', async () => {
  const data_dir = await mkdtemp(join(tmpdir(), 'hub-ingest-'));
  let server = await startEmbeddedPostgres({ data_dir, log: quiet });
  const pool = openPool(server.config, { application_name: 'ingest', max: 2 });
  try {
    await migrate(pool);
    await ensurePartitions(pool);
    await subscribe(pool);
    const handler = handlerOn(pool);
    await handler.onBatch(batchOf(records.slice(0, 20)));
    await server.stop();
    await expect(handler.onBatch(batchOf(records.slice(20, 40)))).rejects.toThrow();
    const failures = await drain(handler, async () => {
      server = await startEmbeddedPostgres({ data_dir, log: quiet });
    });
    expect(failures).toBe(1);
    expect(await countOf(pool, 'event_inbox')).toBe(400);
    expect(await countOf(pool, 'deliveries')).toBe(400);
    const order = await rowsOf<{ ce_id: string }>(
      pool,
      'select ce_id from event_inbox order by seq',
    );
    const ids = records.map((record) =>
      record.headers.find(([name]) => name.toString() === 'ce-id')?.[1].toString(),
    );
    expect(order.map((row) => row.ce_id)).toEqual(ids);
  } finally {
    await pool.end();
    await server.stop();
    await rm(data_dir, { recursive: true, force: true });
  }
});
