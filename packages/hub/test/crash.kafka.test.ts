import {
  createTestDatabase,
  type HubProcess,
  kafkaAvailable,
  kafkaBrokers,
  type Receiver,
  startHubProcess,
  startReceiver,
  type TestDatabase,
  until,
} from '@streaming-hub/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openKafkaStream, type Stream } from '../src/stream/index.ts';
import { eventsOf, reckon, subscribeAll } from './workload.ts';

/** Where the missing ones are, for whoever reads the failure. */
async function explain(database: TestDatabase, hubs: readonly HubProcess[]): Promise<void> {
  for (const text of [
    'select count(*) from event_inbox',
    'select count(*) from deliveries',
    'select state, count(*), min(due_at), max(due_at), max(attempts) from retries group by 1',
    'select crashes, started, count(*) from suspects group by 1, 2',
    'select reason, count(*) from dead_letters group by 1',
    'select outcome, final, count(*) from delivery_attempts group by 1, 2',
    `select l.id, l.address, l.settled_through, (select count(*) from deliveries d where d.lane_id = l.id and d.seq > l.settled_through) as beyond,
       (select s.lease_until - now() from shards s where s.shard = l.shard) as lease from lanes l`,
    'select now(), count(*), min(lease_until), owner from shards group by owner',
    'select * from processes',
  ]) {
    const answer = await database.pool.query(text);
    process.stderr.write(`${text}\n${answer.rows.map((row) => JSON.stringify(row)).join('\n')}\n`);
  }
  for (const hub of hubs) process.stderr.write(`${hub.log().slice(-3_000)}\n`);
}

const tenants = ['t1', 't2', 't3'];
const eventsPerTenant = 1_700;
const kills = 6;
/** Attempts in flight of one process: what a kill may repeat at most. */
const slots = 128;
/** Outcomes that were answered and not yet durable add to it: two flushes and what waits for the next. */
const unrecorded = 600;

describe.skipIf(!kafkaAvailable())('two processes on one Postgres and one Kafka', () => {
  let database: TestDatabase;
  let receiver: Receiver;
  let stream: Stream;
  const hubs: HubProcess[] = [];
  const accepted: { path: string; id: string }[] = [];

  beforeAll(async () => {
    database = await createTestDatabase();
    stream = openKafkaStream({ brokers: kafkaBrokers(), client_id: 'test' });
    receiver = await startReceiver({
      records: false,
      behaviour: (request, response) => {
        const fails = Math.random() < 0.05;
        response.writeHead(fails ? 500 : 200).end();
        if (!fails)
          accepted.push({ path: request.url ?? '', id: String(request.headers['webhook-id']) });
      },
    });
  });

  afterAll(async () => {
    await Promise.all(hubs.map((hub) => hub.kill()));
    for (const hub of hubs) hub.discard();
    await receiver.close();
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
      KEK_REF: 'TEST_KEK',
      RECONCILER_INTERVAL: '1s',
    };
    process.env['TEST_KEK'] = Buffer.alloc(32, 7).toString('base64');
    await stream.ensureTopics([{ name: `${prefix}midaz`, partitions: 4 }]);
    hubs.push(...(await Promise.all([startHubProcess(settings), startHubProcess(settings)])));
    const wanted = await subscribeAll(hubs[0] as HubProcess, receiver, tenants);
    const events = tenants.flatMap((tenant) => eventsOf(tenant, eventsPerTenant));

    const producing = (async () => {
      // Round robin over the tenants, in batches, so that load lasts through all kills.
      for (let from = 0; from < eventsPerTenant; from += 50) {
        const batch = tenants.flatMap((_, t) =>
          events.slice(t * eventsPerTenant + from, t * eventsPerTenant + from + 50),
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
    await until(
      () => new Set(accepted.map((one) => `${one.path} ${one.id}`)).size >= total,
      90_000,
    ).catch(() => undefined);
    const arrivals = reckon(wanted, events, accepted);
    process.stderr.write(
      `crash test: ${total} deliveries, ${kills} kills: ${arrivals.lost.length} lost, ${arrivals.duplicates} repeated, ${arrivals.overtaken} overtaken\n`,
    );
    if (arrivals.lost.length > 0) await explain(database, hubs);
    expect(arrivals.lost.slice(0, 3)).toEqual([]);
    expect(arrivals.overtaken).toBe(0);
    expect(arrivals.duplicates).toBeLessThanOrEqual(kills * (slots + unrecorded));
    const stored = await database.pool.query<{ events: number; deliveries: number }>(
      'select (select count(*) from event_inbox) as events, (select count(*) from deliveries) as deliveries',
    );
    expect(stored.rows[0]).toEqual({ events: events.length, deliveries: total });
  }, 240_000);
});
