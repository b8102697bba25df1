import {
  createTestDatabase,
  type HubProcess,
  kafkaAvailable,
  kafkaBrokers,
  startHubProcess,
  type TestDatabase,
  until,
} from '@streaming-hub/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openKafkaStream, type Stream } from '../src/stream/index.ts';
import { attemptsRecordedTwice, explain, type Ledger, openLedger, say } from './ledger.ts';
import { eventsOf, sharedKey, subscribeAll, type TestEvent } from './workload.ts';

const tenants = ['t1', 't2', 't3', 't4'];
const eventsPerRound = 2;
const pause_ms = 100;

describe.skipIf(!kafkaAvailable())('processes that come and go', () => {
  let database: TestDatabase;
  let ledger: Ledger;
  let stream: Stream;
  const hubs: HubProcess[] = [];

  beforeAll(async () => {
    database = await createTestDatabase();
    stream = openKafkaStream({ brokers: kafkaBrokers(), client_id: 'test' });
    ledger = await openLedger({ fails: 0.02, delay_ms: () => Math.random() * 10 });
  });

  afterAll(async () => {
    await Promise.all(hubs.map((hub) => hub.kill()));
    for (const hub of hubs) hub.discard();
    await ledger.receiver.close();
    await stream.close();
    await database.drop();
  });

  /** Shards held by each process that holds any. */
  const shares = async (): Promise<string> => {
    const held = await database.pool.query<{ n: number }>(
      'select count(*)::int as n from shards where lease_until > now() group by owner order by n',
    );
    return held.rows.map((row) => row.n).join();
  };

  test('a third process joins and another leaves in the middle of batches: everything once and in order', async () => {
    const topic_prefix = `rebalance${process.pid}.`;
    const topic = `${topic_prefix}midaz`;
    const settings = {
      ENV: 'local',
      POSTGRES_DSN: database.dsn,
      KAFKA_BROKERS: kafkaBrokers().join(),
      KAFKA_GROUP: topic_prefix,
      TOPIC_PREFIX: topic_prefix,
      SHARD_LEASE: '5s',
      ...sharedKey,
    };
    await stream.ensureTopics([{ name: topic, partitions: 6 }]);
    hubs.push(...(await Promise.all([startHubProcess(settings), startHubProcess(settings)])));
    const wanted = await subscribeAll(hubs[0] as HubProcess, ledger.receiver, tenants);
    await until(async () => (await shares()) === '32,32', 20_000);

    const events: TestEvent[] = [];
    let producing = true;
    const produced = (async () => {
      while (producing) {
        const round = tenants.flatMap((tenant) => eventsOf(tenant, eventsPerRound));
        await stream.publish(round.map((event) => ({ ...event.record, topic })));
        events.push(...round);
        await new Promise((resolve) => setTimeout(resolve, pause_ms));
      }
    })();
    await until(() => ledger.distinct() > 100, 20_000);
    hubs.push(await startHubProcess(settings));
    await until(async () => ['20,22,22', '21,21,22'].includes(await shares()), 30_000);
    const before = ledger.distinct();
    await until(() => ledger.distinct() > before + 100, 20_000);
    expect(await (hubs[0] as HubProcess).stop()).toBe(0);
    await until(async () => (await shares()) === '32,32', 30_000);
    const after = ledger.distinct();
    await until(() => ledger.distinct() > after + 100, 20_000);
    producing = false;
    await produced;

    const total = events.length * 3;
    await until(() => ledger.distinct() >= total, 60_000).catch(() => undefined);
    const arrivals = ledger.reckon(wanted, events);
    say(`one process joined, one left, ${total} deliveries`, arrivals);
    if (arrivals.lost.length > 0) await explain(database.pool, hubs);
    expect({ ...arrivals, lost: arrivals.lost.slice(0, 3) }).toEqual({
      lost: [],
      duplicates: 0,
      overtaken: 0,
    });
    const stored = await database.pool.query<{ events: number; deliveries: number }>(
      'select (select count(*)::int from event_inbox) as events, (select count(*)::int from deliveries) as deliveries',
    );
    expect(stored.rows[0]).toEqual({ events: events.length, deliveries: total });
    expect(await attemptsRecordedTwice(database.pool)).toBe(0);
  }, 180_000);
});
