import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  freePort,
  type HubProcess,
  kafkaAvailable,
  kafkaBrokers,
  startHubProcess,
  until,
} from '@streaming-hub/testkit';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type EmbeddedPostgres, startEmbeddedPostgres } from '../src/store/index.ts';
import { openKafkaStream, type Stream } from '../src/stream/index.ts';
import {
  attemptsRecordedTwice,
  explain,
  type Ledger,
  openLedger,
  say,
  watchReadiness,
} from './ledger.ts';
import { eventsOf, sharedKey, subscribeAll } from './workload.ts';

const tenants = ['t1', 't2', 't3'];
const eventsPerTenant = 400;
const eventsPerRound = 10;
const kills = 2;

describe.skipIf(!kafkaAvailable())('a hub whose Postgres dies', () => {
  const data_dir = mkdtempSync(join(tmpdir(), 'hub-outage-'));
  let postgres: EmbeddedPostgres;
  let dsn = '';
  let restarts = 0;
  let ledger: Ledger;
  let stream: Stream;
  let hub: HubProcess | null = null;

  beforeAll(async () => {
    const port = await freePort();
    postgres = await startEmbeddedPostgres({
      data_dir,
      port,
      settings: { listen_addresses: '127.0.0.1', fsync: 'off' },
      onState: (state) => {
        if (state === 'up') restarts += 1;
      },
    });
    dsn = `postgresql://${postgres.config.user}@127.0.0.1:${port}/postgres`;
    stream = openKafkaStream({ brokers: kafkaBrokers(), client_id: 'test' });
    ledger = await openLedger({ fails: 0.05 });
  });

  afterAll(async () => {
    await hub?.kill();
    hub?.discard();
    await ledger.receiver.close();
    await stream.close();
    await postgres.stop();
    rmSync(data_dir, { recursive: true, force: true });
  });

  test('killing the postmaster under load loses and repeats nothing, and readiness tells of it', async () => {
    const topic_prefix = `outage${process.pid}.`;
    const topic = `${topic_prefix}midaz`;
    await stream.ensureTopics([{ name: topic, partitions: 3 }]);
    hub = await startHubProcess({
      ENV: 'local',
      POSTGRES_DSN: dsn,
      KAFKA_BROKERS: kafkaBrokers().join(),
      KAFKA_GROUP: topic_prefix,
      TOPIC_PREFIX: topic_prefix,
      ...sharedKey,
    });
    const wanted = await subscribeAll(hub, ledger.receiver, tenants);
    const events = tenants.map((tenant) => eventsOf(tenant, eventsPerTenant));
    const readiness = watchReadiness(hub);

    let killed = 0;
    for (let from = 0; from < eventsPerTenant; from += eventsPerRound) {
      const round = events.flatMap((own) => own.slice(from, from + eventsPerRound));
      await stream.publish(round.map((event) => ({ ...event.record, topic })));
      const progress = from / eventsPerTenant;
      if (killed < kills && progress > (killed + 0.5) / (kills + 0.5)) {
        killed += 1;
        process.kill(postgres.pid, 'SIGKILL');
        await until(() => restarts === killed, 60_000);
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    const total = tenants.length * eventsPerTenant * 3;
    await until(() => ledger.distinct() >= total, 60_000).catch(() => undefined);
    await until(() => readiness.answers.at(-1)?.status === 200, 20_000);
    await readiness.stop();

    const client = new pg.Client({ connectionString: dsn });
    await client.connect();
    const arrivals = ledger.reckon(wanted, events.flat());
    say(`Postgres killed ${killed} times, ${total} deliveries`, arrivals);
    if (arrivals.lost.length > 0) await explain(client as never, [hub]);
    expect(killed).toBe(kills);
    expect({ ...arrivals, lost: arrivals.lost.slice(0, 3) }).toEqual({
      lost: [],
      duplicates: 0,
      overtaken: 0,
    });
    const down = readiness.answers.filter((answer) => answer.failing.includes('database'));
    expect(down.length).toBeGreaterThanOrEqual(kills);
    expect(down.every((answer) => answer.status === 503 && answer.state === 'unavailable')).toBe(
      true,
    );
    const stored = await client.query<{ n: string }>('select count(*) as n from event_inbox');
    expect(Number(stored.rows[0]?.n)).toBe(tenants.length * eventsPerTenant);
    expect(await attemptsRecordedTwice(client as never)).toBe(0);
    await client.end();
  }, 180_000);
});
