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
import { explain, type Ledger, openLedger, say } from './ledger.ts';
import { eventsOf, sharedKey, subscribeAll } from './workload.ts';

const tenants = ['t1', 't2', 't3'];
const eventsPerTenant = 600;
const kills = 3;
/** Attempts in flight of one process: what a kill may repeat at most. */
const slots = 128;
/** Outcomes that were answered and not yet durable add to it: two flushes and what waits for the next. */
const unrecorded = 600;

describe.skipIf(!kafkaAvailable())('two processes on one Postgres and one Kafka', () => {
  let database: TestDatabase;
  let ledger: Ledger;
  let stream: Stream;
  const hubs: HubProcess[] = [];

  beforeAll(async () => {
    database = await createTestDatabase();
    stream = openKafkaStream({ brokers: kafkaBrokers(), client_id: 'test' });
    ledger = await openLedger({ fails: 0.05 });
  });

  afterAll(async () => {
    await Promise.all(hubs.map((hub) => hub.kill()));
    for (const hub of hubs) hub.discard();
    await ledger.receiver.close();
    await stream.close();
    await database.drop();
  });

  test('killing either at random moments loses nothing, repeats only what was in flight, and keeps order', async () => {
    const prefix = `crash${process.pid}.`;
    const settings = {
      ENV: 'local',
      POSTGRES_DSN: database.dsn,
      KAFKA_BROKERS: kafkaBrokers().join(),
      KAFKA_GROUP: prefix,
      TOPIC_PREFIX: prefix,
      SHARD_LEASE: '2s',
      ...sharedKey,
      RECONCILER_INTERVAL: '1s',
    };
    await stream.ensureTopics([{ name: `${prefix}midaz`, partitions: 4 }]);
    hubs.push(...(await Promise.all([startHubProcess(settings), startHubProcess(settings)])));
    const wanted = await subscribeAll(hubs[0] as HubProcess, ledger.receiver, tenants);
    const events = tenants.flatMap((tenant) => eventsOf(tenant, eventsPerTenant));

    const producing = (async () => {
      // Round robin over the tenants, in batches, so that load lasts through all kills.
      for (let from = 0; from < eventsPerTenant; from += 20) {
        const batch = tenants.flatMap((_, t) =>
          events.slice(t * eventsPerTenant + from, t * eventsPerTenant + from + 20),
        );
        await stream.publish(batch.map((event) => ({ ...event.record, topic: `${prefix}midaz` })));
        await new Promise((resolve) => setTimeout(resolve, 300));
      }
    })();

    for (let n = 0; n < kills; n += 1) {
      await new Promise((resolve) => setTimeout(resolve, 500 + Math.random() * 1_500));
      const victim = n % hubs.length;
      await (hubs[victim] as HubProcess).kill();
      hubs[victim] = await (hubs[victim] as HubProcess).restart();
    }
    await producing;

    const total = events.length * 3;
    await until(() => ledger.distinct() >= total, 90_000).catch(() => undefined);
    const arrivals = ledger.reckon(wanted, events);
    say(`${kills} kills of a hub, ${total} deliveries`, arrivals);
    if (arrivals.lost.length > 0) await explain(database.pool, hubs);
    expect(arrivals.lost.slice(0, 3)).toEqual([]);
    expect(arrivals.overtaken).toBe(0);
    expect(arrivals.duplicates).toBeLessThanOrEqual(kills * (slots + unrecorded));
    const stored = await database.pool.query<{ events: number; deliveries: number }>(
      'select (select count(*) from event_inbox) as events, (select count(*) from deliveries) as deliveries',
    );
    expect(stored.rows[0]).toEqual({ events: events.length, deliveries: total });
  }, 240_000);
});
