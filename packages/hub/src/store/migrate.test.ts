import { createEmptyDatabase, type TestDatabase } from '@streaming-hub/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { migrate, migrations, openPool } from './index.ts';

let database: TestDatabase;
beforeEach(async () => {
  database = await createEmptyDatabase();
});
afterEach(() => database.drop());

const first = {
  '0001_first': 'create table first (number integer); insert into first values (1);',
};

test('twenty processes that start at once migrate once', async () => {
  const pools = Array.from({ length: 20 }, () =>
    openPool(database.config, { application_name: 'starter', max: 2 }),
  );
  await Promise.all(pools.map((pool) => migrate(pool)));
  await Promise.all(pools.map((pool) => pool.end()));
  const { rows } = await database.pool.query('select name from schema_migrations order by name');
  expect(rows.map((row) => row.name)).toEqual(Object.keys(migrations).toSorted());
});

test('an older database is brought forward and keeps its data', async () => {
  await migrate(database.pool, first);
  await migrate(database.pool, {
    ...first,
    '0002_second': 'alter table first add column word text default $$new$$',
  });
  expect((await database.pool.query('select * from first')).rows).toEqual([
    { number: 1, word: 'new' },
  ]);
});

test('a newer database is refused and left alone', async () => {
  await migrate(database.pool, { ...first, '0099_later': 'create table later (number integer)' });
  await expect(migrate(database.pool, first)).rejects.toMatchObject({
    code: 'database_newer',
    message: expect.stringMatching(/newer version of the hub \(it has 0099_later/),
  });
});

test('a failing migration leaves the schema as it was, names itself and gives the lock back', async () => {
  const broken = {
    ...first,
    '0002_good': 'create table good (number integer)',
    '0003_bad': 'create table bad (number nonsense)',
  };
  await expect(migrate(database.pool, broken)).rejects.toThrow(
    /Migration 0003_bad failed.*nonsense/,
  );
  const { rows } = await database.pool.query(
    "select to_regclass('good') as good, to_regclass('first') as first",
  );
  expect(rows[0]).toEqual({ good: null, first: null });
  await migrate(database.pool, first);
  expect((await database.pool.query('select number from first')).rows).toEqual([{ number: 1 }]);
});

test('waiting for another process is not cut short by the statement time limit', async () => {
  const pool = openPool(database.config, { application_name: 'waiter', statement_timeout_ms: 50 });
  await migrate(pool, { '0001_slow': 'select pg_sleep(0.2)' });
  await pool.end();
});
