import { createTestDatabase, type TestDatabase, until } from '@streaming-hub/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openPool, withTransaction } from './index.ts';

let database: TestDatabase;
beforeAll(async () => {
  database = await createTestDatabase();
  await database.pool.query('create table numbers (number integer)');
});
afterAll(() => database.drop());

test('bigints come as numbers where they are exact, as bigints where they are not', async () => {
  const { rows } = await database.pool.query(
    "select 1764547200000000::bigint a, array[1, null, 2]::bigint[] b, 9223372036854775807::bigint c, '{}'::bigint[] d",
  );
  expect(rows[0]).toEqual({
    a: 1_764_547_200_000_000,
    b: [1, null, 2],
    c: 9_223_372_036_854_775_807n,
    d: [],
  });
});

test('passes name, time limits and plan mode to the server', async () => {
  const pool = openPool(database.config, {
    application_name: 'hot',
    statement_timeout_ms: 1234,
    idle_in_transaction_ms: 5678,
    force_generic_plan: true,
  });
  const { rows } = await pool.query(
    "select current_setting('application_name') a, current_setting('statement_timeout') b, current_setting('idle_in_transaction_session_timeout') c, current_setting('plan_cache_mode') d",
  );
  expect(rows[0]).toEqual({ a: 'hot', b: '1234ms', c: '5678ms', d: 'force_generic_plan' });
  await pool.end();
});

test('a connection killed while idle or in use ends a query, never the process', async () => {
  const warnings: string[] = [];
  const log = {
    info() {},
    error() {},
    warn: (_: object, message: string) => void warnings.push(message),
  };
  const pool = openPool(database.config, { application_name: 'victim', max: 2, log });
  const kill = () =>
    database.pool.query(
      "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'victim'",
    );

  await pool.query('select 1');
  await kill();
  await until(() => warnings.length > 0);

  const client = await pool.connect();
  await kill();
  await expect(until(async () => void (await client.query('select 1')), 200)).rejects.toThrow();
  client.release(true);

  const sleeping = expect(pool.query('select pg_sleep(60)')).rejects.toThrow(/terminat/);
  await until(async () => (await kill()).rowCount);
  await sleeping;
  expect((await pool.query('select 1 as one')).rows).toEqual([{ one: 1 }]);
  await pool.end();
});

test('a transaction commits its result and rolls back its error', async () => {
  const result = await withTransaction(database.pool, async (client) => {
    await client.query('insert into numbers values (1)');
    return 'done';
  });
  expect(result).toBe('done');
  const failing = withTransaction(database.pool, async (client) => {
    await client.query('insert into numbers values (2)');
    throw new Error('changed my mind');
  });
  await expect(failing).rejects.toThrow('changed my mind');
  expect((await database.pool.query('select number from numbers')).rows).toEqual([{ number: 1 }]);
});

test('a transaction whose connection is lost throws, and its connection is not used again', async () => {
  const pool = openPool(database.config, { application_name: 'lost', max: 1 });
  const losing = withTransaction(pool, (client) =>
    client.query('select pg_terminate_backend(pg_backend_pid())'),
  );
  await expect(losing).rejects.toThrow();
  expect((await pool.query('select 1 as one')).rows).toEqual([{ one: 1 }]);
  await pool.end();
});
