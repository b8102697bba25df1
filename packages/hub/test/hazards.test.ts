import { createTestDatabase, type TestDatabase, until } from '@streaming-hub/testkit';
import pg from 'pg';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { attributesOf, batchOf, handlerOn, recordsFrom, subscribe } from '../src/ingest/testing.ts';
import type { Dispatcher } from '../src/lanes/index.ts';
import { delivered, dispatcherOn, scriptedSink } from '../src/lanes/testing.ts';
import { openPool } from '../src/store/index.ts';

/**
 * The two ways in which a reader of a log loses work: it passes a row that commits later, or it
 * goes to sleep while the row commits. Both without notifications: they are hints, and looking
 * again and again must be enough.
 */
const writers = 4;
const batchesPerWriter = 25;
const commitDelay_seconds_max = 0.02;

let database: TestDatabase;
let deaf: pg.Client;
const heard: string[] = [];
const pools: pg.Pool[] = [];
const running: Dispatcher[] = [];

beforeEach(async () => {
  database = await createTestDatabase();
  // Whoever connects from now on finds a pg_notify that does nothing.
  const name = (await database.pool.query<{ name: string }>('select current_database() as name'))
    .rows[0]?.name;
  await database.pool.query(`
    create function public.pg_notify(channel text, payload text) returns void language sql as '';
    alter database ${name} set search_path = public, pg_catalog`);
  deaf = new pg.Client(database.config);
  deaf.on('error', () => {});
  deaf.on('notification', (message) => heard.push(message.channel));
  await deaf.connect();
  await deaf.query('listen hub_ingested');
});

afterEach(async () => {
  await Promise.all(running.splice(0).map((dispatcher) => dispatcher.stop()));
  await Promise.all(pools.splice(0).map((pool) => pool.end()));
  await deaf.end();
  await database.drop();
  expect(heard).toEqual([]);
});

function poolOf(max: number): pg.Pool {
  const pool = openPool(database.config, { application_name: 'hazards', max });
  pools.push(pool);
  return pool;
}

async function startDispatcher(sink: ReturnType<typeof scriptedSink>['sink'], lease_ms: number) {
  const dispatcher = dispatcherOn(poolOf(4), database.config, sink, {
    lease_ms,
    idle_interval_ms: 10,
  });
  running.push(dispatcher);
  await dispatcher.start();
}

test('writers that commit late never make an owner pass a delivery', async () => {
  for (let n = 0; n < 6; n += 1) await subscribe(poolOf(1));
  // A pause before each commit, of another length in each transaction.
  await database.pool.query(`
    create function dawdle() returns trigger language plpgsql as $$
    begin perform pg_sleep(random() * ${commitDelay_seconds_max}); return null; end $$;
    create constraint trigger dawdle after insert on batch_log
      deferrable initially deferred for each row execute function dawdle()`);
  const { sink, requests } = scriptedSink(() => delivered);
  await startDispatcher(sink, 2_000);
  await startDispatcher(sink, 2_000);
  const written = await Promise.all(
    Array.from({ length: writers }, async (_, partition) => {
      const { onBatch } = handlerOn(poolOf(1));
      const ids: string[] = [];
      for (let batch = 0; batch < batchesPerWriter; batch += 1) {
        const records = Array.from({ length: 1 + ((batch * 7 + partition) % 3) }, () => {
          const attributes = attributesOf();
          ids.push(attributes['id'] ?? '');
          return { attributes, partition };
        });
        await onBatch(batchOf(recordsFrom(ids.length - records.length, records)));
      }
      return ids;
    }),
  );
  const total = written.flat().length * 6;
  await until(() => requests.length >= total, 20_000).catch(() => undefined);
  expect(requests.length).toBe(total);
  const lanes = Map.groupBy(requests, (request) => request.subscription.number);
  for (const lane of lanes.values()) {
    const sequences = lane.map((request) => request.event.sequence);
    expect(sequences).toEqual(sequences.toSorted((a, b) => a - b));
    expect(new Set(lane.map((request) => request.event.id))).toEqual(new Set(written.flat()));
  }
}, 60_000);

test('an owner that goes idle while ingest commits does not forget the work', async () => {
  await subscribe(poolOf(1));
  const { sink, requests } = scriptedSink(() => delivered);
  await startDispatcher(sink, 2_000);
  const { onBatch } = handlerOn(poolOf(1));
  const slowest: number[] = [];
  for (let n = 0; n < 80; n += 1) {
    await onBatch(batchOf(recordsFrom(n, [{ attributes: attributesOf() }])));
    const asked_ms = performance.now();
    // Nothing comes after it that could make up for a look that was missed.
    await until(() => requests.length > n, 5_000);
    slowest.push(performance.now() - asked_ms);
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 25));
  }
  expect(requests.length).toBe(80);
  process.stderr.write(
    `without notifications an event waited ${Math.round(Math.max(...slowest))} ms at most\n`,
  );
}, 60_000);
