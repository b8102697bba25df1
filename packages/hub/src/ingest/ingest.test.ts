import { defaultRules, encodeRecord } from '@streaming-hub/contract';
import { createTestDatabase, type TestDatabase, until } from '@streaming-hub/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openEmbeddedStream, type Stream } from '../stream/index.ts';
import { createIngest } from './index.ts';
import {
  attributesOf,
  countingMetrics,
  countOf,
  quiet,
  rowsOf,
  subscribe,
  topic,
} from './testing.ts';

let db: TestDatabase;
let stream: Stream;

beforeEach(async () => {
  db = await createTestDatabase();
  stream = openEmbeddedStream({ database: db.config });
  await stream.ensureTopics([
    { name: topic, partitions: 3 },
    { name: `${topic}.dlq`, partitions: 1 },
  ]);
});
afterEach(async () => {
  await stream.close();
  await db.drop();
});

function ingestOn(limits = {}) {
  const { metrics, counts } = countingMetrics();
  const ingest = createIngest({
    pool: db.pool,
    stream,
    rules: defaultRules,
    group: 'streaming-hub.test',
    metrics,
    log: quiet,
    limits,
    refresh_interval_ms: 300_000,
  });
  return { ingest, counts };
}

function publish(count: number, to = topic) {
  const records = Array.from({ length: count }, (_, index) => ({
    ...encodeRecord(
      attributesOf({ subject: `s-${index}` }),
      Buffer.from(`{"n":${index}}`),
      defaultRules,
    ),
    topic: to,
    key: Buffer.from(`key-${index}`),
  }));
  return stream.publish(records);
}

const stored = async () => countOf(db.pool, 'event_inbox');

test('what is published on any partition is stored once and matched; other topics are left alone', async () => {
  await subscribe(db.pool);
  await publish(40);
  await publish(3, `${topic}.dlq`);
  const { ingest, counts } = ingestOn({ batch_records_max: 7 });
  await ingest.start();
  await until(async () => (await stored()) === 40);
  await publish(20);
  await until(async () => (await stored()) === 60);
  await until(async () => (await ingest.consumer.lag()).every(({ lag }) => lag === 0));
  expect(ingest.consumer.healthy()).toBe(true);
  await ingest.stop();
  await ingest.stop();
  expect(counts).toMatchObject({ accept: 60, stored: 60 });
  expect(counts['drop/duplicate']).toBeUndefined();
  expect(await countOf(db.pool, 'deliveries')).toBe(60);
  expect(await countOf(db.pool, 'quarantine')).toBe(0);
});

test('a second process takes over where the first stopped, and lost commits change nothing', async () => {
  await publish(30);
  const first = ingestOn();
  await first.ingest.start();
  await until(async () => (await stored()) === 30);
  await first.ingest.stop();
  await publish(30);
  // As if no commit to the group had ever arrived: the stored positions win.
  await db.pool.query('update stream_assignments set next_offset = 0');
  const second = ingestOn();
  await second.ingest.start();
  await until(async () => (await stored()) === 60);
  await second.ingest.stop();
  expect(second.counts).toMatchObject({ stored: 30 });
  expect(second.counts['drop/duplicate']).toBeUndefined();
});

test('two processes of one group share the partitions and store everything once', async () => {
  await subscribe(db.pool);
  const [a, b] = [ingestOn({ batch_records_max: 5 }), ingestOn({ batch_records_max: 5 })];
  await a.ingest.start();
  const publishing = (async () => {
    for (let round = 0; round < 20; round++) await publish(10);
  })();
  await b.ingest.start();
  await publishing;
  await until(async () => (await stored()) === 200);
  await a.ingest.stop();
  await publish(50);
  await until(async () => (await stored()) === 250);
  await b.ingest.stop();
  expect((a.counts['stored'] ?? 0) + (b.counts['stored'] ?? 0)).toBe(250);
  const rows = await rowsOf<{ n: number }>(
    db.pool,
    'select count(distinct (lane_id, ce_id))::integer as n from deliveries',
  );
  expect(rows).toEqual([{ n: 250 }]);
});

test('while the database refuses to store, nothing is lost and other partitions go on', async () => {
  await db.pool.query(`
    create function refuse() returns trigger language plpgsql as $$
    begin
      if new.body = convert_to('{"n":0}', 'UTF8') then raise exception 'away' using errcode = '57P03'; end if;
      return new;
    end $$;
    create trigger refuse before insert on event_inbox for each row execute function refuse()`);
  const positions = await publish(30);
  const blocked = positions[0]?.partition;
  const after = positions.filter((position) => position.partition === blocked).length;
  const { ingest, counts } = ingestOn({ batch_records_max: 1 });
  await ingest.start();
  await until(async () => (await stored()) === 30 - after && (counts['faults'] ?? 0) > 2);
  await db.pool.query('drop trigger refuse on event_inbox');
  await until(async () => (await stored()) === 30);
  await ingest.stop();
  expect(counts['stored']).toBe(30);
});
