import { createTestDatabase, type TestDatabase } from '@streaming-hub/testkit';
import { V7Generator } from 'uuidv7';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { readEvent } from '../inbox/index.ts';
import { weekOf } from './statement.ts';
import {
  attributesOf,
  batchOf,
  countOf,
  handlerOn,
  recordsFrom,
  rowsOf,
  subscribe,
} from './testing.ts';

let db: TestDatabase;

beforeEach(async () => {
  db = await createTestDatabase();
});
afterEach(() => db.drop());

const day_ms = 86_400_000;
const idAt = (at_ms: number) => new V7Generator().generateOrResetCore(at_ms, 10_000).toString();

test('old ids make the weeks they need: days, a week, a year ago, 1970; and the sequence stays now', async () => {
  await subscribe(db.pool);
  const now_ms = Date.now();
  const ids = [0, 1, 7, 8, 365, 366, 3650]
    .map((days) => idAt(now_ms - days * day_ms))
    .concat(idAt(1));
  const { onBatch, counts } = handlerOn(db.pool);
  const all = ids.map((id) => ({ attributes: attributesOf({ id }) }));
  expect(await onBatch(batchOf(recordsFrom(0, all)))).toBe(8);
  expect(counts).toMatchObject({ stored: 8 });
  const rows = await rowsOf<{ ce_id: string; seq: number }>(
    db.pool,
    'select ce_id, seq from event_inbox order by seq',
  );
  expect(rows.map((row) => row.ce_id)).toEqual(ids);
  for (const row of rows) expect(row.seq / 1000).toBeGreaterThanOrEqual(now_ms - 1000);
  await onBatch(batchOf(recordsFrom(8, all)));
  expect(counts['duplicates']).toBe(8);
});

test('an id three weeks ahead is stored, one beyond the horizon is quarantined', async () => {
  const near = idAt(Date.now() + 21 * day_ms);
  const far = idAt(Date.now() + 29 * day_ms);
  const { onBatch, counts } = handlerOn(db.pool);
  await onBatch(
    batchOf(
      recordsFrom(
        0,
        [near, far].map((id) => ({ attributes: attributesOf({ id }) })),
      ),
    ),
  );
  expect(counts).toMatchObject({ accept: 1, 'quarantine/id_time_out_of_range': 1 });
  expect(await readEvent(db.pool, 'tenant-a', near)).not.toBeNull();
});

test('a missing current week is made, for the inbox and for deliveries', async () => {
  await subscribe(db.pool);
  const tables = await rowsOf<{ name: string }>(
    db.pool,
    `select inhrelid::regclass::text as name from pg_inherits where inhparent in ('event_inbox'::regclass, 'deliveries'::regclass)`,
  );
  for (const { name } of tables) await db.pool.query(`drop table ${name}`);
  await handlerOn(db.pool).onBatch(batchOf(recordsFrom(0, [{}])));
  expect(await countOf(db.pool, 'deliveries')).toBe(1);
});

test('a sequence that has run ahead of the clock goes on from where it is, in a week of its own', async () => {
  await subscribe(db.pool);
  const ahead = (Date.now() + 400 * day_ms) * 1000;
  await db.pool.query(`select setval('arrival_sequence', $1)`, [ahead]);
  await handlerOn(db.pool).onBatch(batchOf(recordsFrom(0, [{}, {}])));
  const rows = await rowsOf<{ seq: number }>(db.pool, 'select seq from deliveries order by seq');
  const [first = 0, second = 0] = rows.map((row) => row.seq);
  // The transaction that found no week had drawn numbers already: a gap.
  expect(first).toBeGreaterThan(ahead);
  expect(second).toBe(first + 1);
});

test('the week of an id is that of the table function', async () => {
  const id = idAt(Date.now());
  const rows = await rowsOf<{ inside: boolean }>(
    db.pool,
    'select $1::uuid >= uuid_week_bound($2) and $1::uuid < uuid_week_bound($2 + 1) as inside',
    [id, weekOf(id)],
  );
  expect(rows).toEqual([{ inside: true }]);
});
