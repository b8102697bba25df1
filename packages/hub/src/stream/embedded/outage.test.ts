import { createTestDatabase, type TestDatabase, until } from '@streaming-hub/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { withTransaction } from '../../store/index.ts';
import type { ConsumeOptions, OutgoingRecord, PartitionBatch, Stream } from '../port.ts';
import { createMembership } from './group.ts';
import { openEmbeddedStream } from './index.ts';

const lease_ms = 900;
let database: TestDatabase;
let stream: Stream;

beforeAll(async () => {
  database = await createTestDatabase();
  stream = openEmbeddedStream({ database: database.config, lease_ms });
});
afterAll(async () => {
  await stream.close();
  await database.drop();
});

function record(topic: string, partition = 0): OutgoingRecord {
  return { topic, partition, key: null, value: Buffer.from('x'), headers: [] };
}

async function consume(topic: string, onBatch?: ConsumeOptions['onBatch']) {
  const faults: Error[] = [];
  const handled: string[] = [];
  const consumer = stream.consume({
    group: topic,
    topics: new RegExp(topic),
    refresh_interval_ms: 60_000,
    batch_records_max: 100,
    batch_bytes_max: 100_000,
    buffered_bytes_max: 1_000_000,
    loadPositions: async () => new Map(),
    onFault: (fault) => void faults.push(fault),
    onBatch: async (batch: PartitionBatch) => {
      const next = onBatch ? await onBatch(batch) : (batch.records.at(-1)?.offset ?? 0) + 1;
      for (const { partition, offset } of batch.records) handled.push(`${partition}/${offset}`);
      return next;
    },
  });
  await consumer.start();
  return { consumer, faults, handled };
}

test('a member that cannot reach its group lets go before its lease ends, and then takes its partitions again', async () => {
  await stream.ensureTopics([{ name: 'fenced', partitions: 2 }]);
  const running = new Set<number>();
  let overlaps = 0;
  let release = () => {};
  let hold: Promise<void> | undefined = new Promise((resolve) => {
    release = resolve;
  });
  const signals: AbortSignal[] = [];
  const { consumer, handled } = await consume('fenced', async ({ partition, records, signal }) => {
    if (running.has(partition)) overlaps++;
    running.add(partition);
    signals.push(signal);
    await hold;
    running.delete(partition);
    return (records.at(-1)?.offset ?? 0) + 1;
  });
  await stream.publish([record('fenced', 0)]);
  await until(() => signals.length === 1);
  await withTransaction(database.pool, async (client) => {
    await client.query('lock table stream_members in access exclusive mode');
    await until(() => consumer.assignments().length === 0);
    expect(signals[0]?.aborted).toBe(true);
  });
  // The other partition comes back at once, this one only after the handler has ended.
  await until(() => consumer.assignments().length === 1);
  await stream.publish([record('fenced', 1)]);
  hold = undefined;
  release();
  await until(() => consumer.assignments().length === 2);
  await stream.publish([record('fenced', 0)]);
  await until(() => ['0/0', '0/1', '1/0'].every((key) => handled.includes(key)));
  expect(overlaps).toBe(0);
  await consumer.stop();
});

test('a lost connection that listens is rebuilt, and is not healthy meanwhile', async () => {
  await stream.ensureTopics([{ name: 'deaf', partitions: 1 }]);
  const { consumer, faults, handled } = await consume('deaf');
  await until(() => consumer.healthy());
  await database.pool.query(
    `select pg_terminate_backend(pid) from pg_stat_activity
     where application_name = 'hub-stream-listen' and datname = current_database()`,
  );
  await until(() => faults.length > 0 || !consumer.healthy());
  await stream.publish([record('deaf')]);
  await until(() => handled.length === 1);
  await until(() => consumer.healthy());
  await consumer.stop();
});

test('polling alone is enough', async () => {
  await stream.ensureTopics([{ name: 'quiet', partitions: 1 }]);
  const { consumer, handled } = await consume('quiet');
  await until(() => consumer.healthy());
  // Copied by hand, so that nobody is notified.
  await stream.ensureTopics([{ name: 'source', partitions: 1 }]);
  await stream.publish([record('source')]);
  await database.pool.query(
    `insert into stream_log select (select id from stream_topics where name = 'quiet'), partition, first_offset, last_offset,
       appended_ms, timestamp_ms, day, bytes, records
     from stream_log where topic_id = (select id from stream_topics where name = 'source')`,
  );
  await until(() => handled.length === 1);
  await consumer.stop();
});

test('only the owner commits, and only in its generation', async () => {
  await stream.ensureTopics([{ name: 'generation', partitions: 1 }]);
  const topic = await database.pool.query<{ id: number }>(
    `select id from stream_topics where name = 'generation'`,
  );
  const topic_id = topic.rows[0]?.id ?? 0;
  const member = (id: string, lease = 60_000) =>
    createMembership(database.pool, { group: 'generation', member: id, lease_ms: lease });
  const seat = { topic_id, partition: 0, generation: 0 };

  const first = member('00000000-0000-7000-8000-000000000001', 300);
  await first.join([topic_id]);
  const [claimed] = await first.claim([seat]);
  expect(claimed).toEqual({ topic_id, partition: 0, generation: 1, next_offset: null });
  if (!claimed) return;
  expect(await first.commit([{ ...claimed, next_offset: 5 }])).toHaveLength(1);

  const second = member('00000000-0000-7000-8000-000000000002');
  await until(async () => {
    await second.join([topic_id]);
    return (await second.seats()).seats.some((one) => one.owner === null);
  });
  expect(await second.claim([seat])).toEqual([
    { topic_id, partition: 0, generation: 2, next_offset: 5 },
  ]);
  expect(await first.commit([{ ...claimed, next_offset: 9 }])).toEqual([]);
  expect(await second.commit([{ ...seat, generation: 1, next_offset: 9 }])).toEqual([]);
  expect(await second.commit([{ ...seat, generation: 2, next_offset: 6 }])).toHaveLength(1);
  expect((await first.heartbeat()).member).toBe(false);
});

test('positions are committed by the clock, while it runs', async () => {
  await stream.ensureTopics([{ name: 'commit', partitions: 1 }]);
  const { consumer, handled } = await consume('commit');
  await stream.publish([record('commit')]);
  await until(() => handled.length === 1);
  await until(async () => {
    const found = await database.pool.query<{ next_offset: number }>(
      `select next_offset from stream_assignments where group_name = 'commit'`,
    );
    return found.rows[0]?.next_offset === 1;
  });
  await consumer.stop();
});
