import { createTestDatabase, type TestDatabase, until } from '@streaming-hub/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { listEvents } from '../inbox/index.ts';
import { batchOf, handlerOn, recordsFrom, rowsOf, subscribe } from './testing.ts';

let db: TestDatabase;

beforeEach(async () => {
  db = await createTestDatabase();
});
afterEach(() => db.drop());

test('a reader by sequence never skips an event or a batch line, whatever writes beside it', async () => {
  await subscribe(db.pool);
  // A pause before commit, of another length in each transaction, gives overtaking every chance.
  await db.pool.query(`
    create function dawdle() returns trigger language plpgsql as $$
    begin
      perform pg_sleep(random() * 0.004);
      return null;
    end $$;
    create constraint trigger dawdle after insert on batch_log
      deferrable initially deferred for each row execute function dawdle()`);
  const writers = [0, 1, 2, 3].map(async (partition) => {
    const { onBatch } = handlerOn(db.pool);
    let position = 0;
    for (let batch = 0; batch < 40; batch++) {
      const size = 1 + ((batch * 7 + partition) % 5);
      position = await onBatch(
        batchOf(
          recordsFrom(
            position,
            Array.from({ length: size }, () => ({ partition })),
          ),
        ),
      );
    }
    return position;
  });
  let done = false;
  const written = Promise.all(writers).then((positions) => {
    done = true;
    return positions.reduce((sum, position) => sum + position, 0);
  });
  const seen: number[] = [];
  const lines: number[] = [];
  for (let last = false; ; last = done) {
    const events = await listEvents(db.pool, {
      tenant_id: 'tenant-a',
      after: seen.at(-1) ?? 0,
      limit: 500,
    });
    seen.push(...events.map((event) => event.sequence));
    const rows = await rowsOf<{ seq_to: number }>(
      db.pool,
      'select seq_to from batch_log where seq_to > $1 order by seq_to limit 200',
      [lines.at(-1) ?? 0],
    );
    lines.push(...rows.map((row) => row.seq_to));
    if (last && events.length === 0 && rows.length === 0) break;
  }
  const total = await written;
  const stored = await rowsOf<{ seq: number }>(db.pool, 'select seq from event_inbox order by seq');
  expect(stored).toHaveLength(total);
  expect(seen).toEqual(stored.map((row) => row.seq));
  expect(new Set(seen).size).toBe(total);
  const logged = await rowsOf<{ seq_to: number }>(
    db.pool,
    'select seq_to from batch_log order by seq_to',
  );
  expect(lines).toEqual(logged.map((row) => row.seq_to));
});

test('the sequence lock is taken last: a batch that waits for it has matched and holds no events', async () => {
  await subscribe(db.pool);
  const holder = await db.pool.connect();
  await holder.query('begin');
  await holder.query('select pg_advisory_xact_lock(1398096, 1)');
  const drops = handlerOn(db.pool).onBatch(
    batchOf(recordsFrom(0, [{ headers: [], partition: 1 }])),
  );
  // Records that need no sequence pass while somebody holds the lock.
  expect(await drops).toBe(1);
  let finished = false;
  const waiting = handlerOn(db.pool)
    .onBatch(batchOf(recordsFrom(0, [{}])))
    .then((position) => {
      finished = true;
      return position;
    });
  const blocked = async () =>
    (
      await rowsOf<{ n: number }>(
        holder,
        "select count(*)::integer as n from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())",
      )
    )[0]?.n;
  await until(blocked);
  expect(finished).toBe(false);
  const before = Date.now() * 1000;
  await holder.query('commit');
  holder.release();
  expect(await waiting).toBe(1);
  const rows = await rowsOf<{ seq: number }>(db.pool, 'select seq from event_inbox');
  // Drawn after the wait, so that nothing committed meanwhile has a higher number.
  expect(rows[0]?.seq).toBeGreaterThanOrEqual(before - 1000);
});

test('sequences survive an emptied batch log and a clock that goes back', async () => {
  await subscribe(db.pool);
  const handler = handlerOn(db.pool);
  await handler.onBatch(batchOf(recordsFrom(0, [{}])));
  const ahead = Date.now() * 1000 + 60_000_000;
  await db.pool.query(`select setval('arrival_sequence', $1)`, [ahead]);
  await db.pool.query('truncate batch_log');
  await handler.onBatch(batchOf(recordsFrom(1, [{}, {}])));
  await handler.onBatch(batchOf(recordsFrom(3, [{}])));
  const rows = await rowsOf<{ seq: number }>(
    db.pool,
    'select seq from event_inbox where seq > $1 order by seq',
    [ahead],
  );
  expect(rows.map((row) => row.seq - ahead)).toEqual([1, 2, 3]);
});
