import {
  createTestDatabase,
  type HubProcess,
  type KafkaCluster,
  kafkaStartable,
  startHubProcess,
  startKafka,
  type TestDatabase,
  until,
} from '@streaming-hub/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openKafkaStream, type Stream } from '../src/stream/index.ts';
import { explain, type Ledger, openLedger, say, watchReadiness } from './ledger.ts';
import { eventsOf, postEvents, sharedKey, subscribeAll, type TestEvent } from './workload.ts';

const events_max = 3_000;
const eventsPerCall = 5;
const pause_ms = 40;

describe.skipIf(!kafkaStartable())('a hub whose Kafka dies', () => {
  let kafka: KafkaCluster;
  let database: TestDatabase;
  let ledger: Ledger;
  let stream: Stream;
  let hub: HubProcess;

  beforeAll(async () => {
    [kafka, database, ledger] = await Promise.all([
      startKafka(),
      createTestDatabase(),
      openLedger({ fails: 0.02 }),
    ]);
    stream = openKafkaStream({
      brokers: kafka.brokers,
      client_id: 'test',
      delivery_timeout_ms: 90_000,
    });
    await stream.ensureTopics([{ name: 'outage.midaz', partitions: 3 }]);
    hub = await startHubProcess({
      ENV: 'local',
      POSTGRES_DSN: database.dsn,
      KAFKA_BROKERS: kafka.brokers.join(),
      TOPIC_PREFIX: 'outage.',
      ...sharedKey,
    });
  }, 120_000);

  afterAll(async () => {
    await hub?.kill();
    hub?.discard();
    await stream.close();
    await ledger.receiver.close();
    await database.drop();
    await kafka.stop();
  });

  test('what was acknowledged is delivered, what was not is answered 503, and readiness tells of it', async () => {
    const wanted = await subscribeAll(hub, ledger.receiver, ['http', 'direct']);
    const readiness = watchReadiness(hub);
    let loading = true;
    const answers = new Map<number, number>();
    const refusals: { retry_after: string | null; type: string | null }[] = [];

    /** Calls until told to stop; answers the events that were acknowledged, in order. */
    const load = async (tenant: string, send: (events: TestEvent[]) => Promise<boolean>) => {
      const events = eventsOf(tenant, events_max);
      let sent = 0;
      while (loading && sent < events_max) {
        if (await send(events.slice(sent, sent + eventsPerCall))) sent += eventsPerCall;
        await new Promise((resolve) => setTimeout(resolve, pause_ms));
      }
      return events.slice(0, sent);
    };
    const posting = load('http', async (events) => {
      const answer = await postEvents(hub, 'http', events);
      answers.set(answer.status, (answers.get(answer.status) ?? 0) + 1);
      if (answer.status !== 202) refusals.push(answer);
      return answer.status === 202;
    });
    const producing = load('direct', async (events) => {
      await stream.publish(events.map((event) => ({ ...event.record, topic: 'outage.midaz' })));
      return true;
    });

    await until(() => ledger.distinct() > 100, 20_000);
    await kafka.kill();
    await until(() => readiness.answers.at(-1)?.failing.includes('stream'), 20_000);
    await until(() => refusals.length > 0, 30_000);
    const during = answers.get(202) ?? 0;
    await kafka.restart();
    await until(() => (answers.get(202) ?? 0) > during + 20, 60_000);
    await until(() => readiness.answers.at(-1)?.status === 200, 30_000);
    loading = false;
    const events = [...(await posting), ...(await producing)];
    await readiness.stop();

    const total = events.length * 3;
    await until(() => ledger.distinct() >= total, 60_000).catch(() => undefined);
    const arrivals = ledger.reckon(wanted, events);
    say(
      `Kafka killed once, ${total} deliveries`,
      arrivals,
      `; answers ${JSON.stringify([...answers])}`,
    );
    if (arrivals.lost.length > 0) await explain(database.pool, [hub]);
    expect({ ...arrivals, lost: arrivals.lost.slice(0, 3) }).toEqual({
      lost: [],
      duplicates: 0,
      overtaken: 0,
    });
    expect([...answers.keys()].sort()).toEqual([202, 503]);
    for (const refusal of refusals) {
      expect(refusal.type).toContain('application/problem+json');
      expect(Number(refusal.retry_after)).toBeGreaterThan(0);
    }
    const down = readiness.answers.filter((answer) => answer.failing.includes('stream'));
    expect(down.every((answer) => answer.status === 503)).toBe(true);
    const stored = await database.pool.query<{ n: number }>(
      'select count(*)::int as n from event_inbox',
    );
    expect(stored.rows[0]?.n).toBe(events.length);
  }, 240_000);
});
