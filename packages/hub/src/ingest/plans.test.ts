import { createTestDatabase, type TestDatabase, until } from '@streaming-hub/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { batchOf, handlerOn, recordsFrom, rowsOf, subscribe } from './testing.ts';

let db: TestDatabase;

beforeEach(async () => {
  db = await createTestDatabase();
});
afterEach(() => db.drop());

test('look-ups by id use the key in weeks that were analyzed while empty', async () => {
  await db.pool.query('analyze');
  const client = await db.pool.connect();
  await client.query('set enable_seqscan = off');
  await client.query('set plan_cache_mode = force_generic_plan');
  await client.query(`
    prepare look_up(text[], uuid[]) as
    select i.body from unnest($1, $2) k(tenant_id, ce_id) cross join lateral (
      select body from event_inbox e where e.tenant_id = k.tenant_id and e.ce_id = k.ce_id limit 1) i`);
  const lines = await rowsOf<Record<string, string>>(
    client,
    `explain execute look_up('{a}', '{${crypto.randomUUID()}}')`,
  );
  client.release(true);
  const scans = lines
    .map((line) => line['QUERY PLAN'] ?? '')
    .filter((line) => / on event_inbox_w/.test(line));
  expect(scans.length).toBeGreaterThan(0);
  for (const scan of scans) expect(scan).toMatch(/Index (Only )?Scan using event_inbox_w\d+_pkey/);
});

test('a database analyzed while empty is not scanned by ingest', async () => {
  await db.pool.query('analyze');
  const { number, lane_id } = await subscribe(db.pool);
  const handler = handlerOn(db.pool);
  const batch = (from: number) =>
    batchOf(
      recordsFrom(
        from,
        Array.from({ length: 100 }, () => ({})),
      ),
    );
  await handler.onBatch(batch(0));
  await db.pool.query(
    `insert into subscription_matches select 'other-' || n, '*', $1, $2 from generate_series(1, 5000) n`,
    [number, lane_id],
  );
  await handler.onBatch(batch(100));
  const stats = () =>
    rowsOf<{ relname: string; seq_scan: number; idx_scan: number }>(
      db.pool,
      `select relname, seq_scan, idx_scan from pg_stat_user_tables
       where relname in ('subscription_matches', 'ingested_batches') and idx_scan > 0 order by relname`,
    );
  const before = await until(async () => {
    const rows = await stats();
    return rows.length === 2 ? rows : null;
  });
  await handler.onBatch(batch(200));
  const after = await until(async () => {
    const rows = await stats();
    return rows.every((row, index) => row.idx_scan > (before[index]?.idx_scan ?? 0)) ? rows : null;
  });
  expect(after.map((row) => row.seq_scan)).toEqual(before.map((row) => row.seq_scan));
});

test('bodies and attributes are stored uncompressed in every week', async () => {
  const rows = await rowsOf<{ storage: string }>(
    db.pool,
    `select distinct a.attstorage as storage from pg_attribute a join pg_inherits i on i.inhrelid = a.attrelid
     where i.inhparent = 'event_inbox'::regclass and a.attname in ('body', 'attributes')`,
  );
  expect(rows).toEqual([{ storage: 'e' }]);
});
