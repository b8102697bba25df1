import { createTestDatabase, type TestDatabase, until } from '@streaming-hub/testkit';
import type pg from 'pg';
import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  addEvents,
  addSubscription,
  delivered,
  dispatcherOn,
  failed,
  scriptedSink,
} from './testing.ts';

let database: TestDatabase;

beforeEach(async () => {
  database = await createTestDatabase();
});
afterEach(() => database.drop());

/** Statements of this name are carried out; the answer to the first `count` of them is lost, late. */
function losingAnswers(
  pool: pg.Pool,
  name: string,
  count: number,
): { pool: pg.Pool; lost(): number } {
  let lost = 0;
  const query = async (config: { name?: string }, ...rest: unknown[]) => {
    const answer = await (pool.query as (...all: unknown[]) => Promise<unknown>)(config, ...rest);
    if (config.name !== name || lost >= count) return answer;
    lost += 1;
    await new Promise((resolve) => setTimeout(resolve, 400));
    throw new Error('Connection terminated unexpectedly');
  };
  const wrapped = new Proxy(pool, {
    get: (target, key) => (key === 'query' ? query : Reflect.get(target, key)) as unknown,
  });
  return { pool: wrapped, lost: () => lost };
}

async function attempts(): Promise<{ outcome: string; n: number }[]> {
  const answer = await database.pool.query<{ outcome: string; n: number }>(
    'select outcome, count(*)::int as n from delivery_attempts group by 1 order by 1',
  );
  return answer.rows;
}

test.each(['unordered', 'fifo'])(
  'a retry that was stored while its answer got lost was sent twice (%s)',
  async (ordering) => {
    const subscription = await addSubscription(database.pool, { ordering });
    await addEvents(database.pool, [subscription], ['a', 'b', 'c']);
    const seen = new Set<string>();
    const { sink, requests } = scriptedSink(({ event }) => {
      if (seen.has(event.id)) return delivered;
      seen.add(event.id);
      return failed;
    });
    const { pool, lost } = losingAnswers(database.pool, 'record-changes', 1);
    const dispatcher = dispatcherOn(pool, database.config, sink);
    await dispatcher.start();
    await until(async () =>
      (await attempts()).some((row) => row.outcome === 'delivered' && row.n >= 3),
    );
    await dispatcher.stop();
    expect(lost()).toBe(1);
    expect(requests.length).toBe(6);
    expect(await attempts()).toEqual([
      { outcome: 'delivered', n: 3 },
      { outcome: 'failed', n: 3 },
    ]);
    const left = await database.pool.query('select 1 from retries');
    expect(left.rowCount).toBe(0);
  },
);

test('an attempt whose record was stored while its answer got lost was recorded twice', async () => {
  const subscription = await addSubscription(database.pool);
  await addEvents(database.pool, [subscription], ['a']);
  const { sink, requests } = scriptedSink(() => delivered);
  const { pool, lost } = losingAnswers(database.pool, 'append-delivered', 1);
  const dispatcher = dispatcherOn(pool, database.config, sink);
  await dispatcher.start();
  await until(() => lost() === 1);
  await dispatcher.stop();
  expect(requests.length).toBe(1);
  expect(await attempts()).toEqual([{ outcome: 'delivered', n: 1 }]);
});
