import { readFileSync } from 'node:fs';
import { malformedRecords } from '@streaming-hub/contract/fixtures';
import {
  createTestDatabase,
  type HubProcess,
  kafkaAvailable,
  kafkaBrokers,
  startHubProcess,
  type TestDatabase,
  until,
  witnessAdmin,
} from '@streaming-hub/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type OutgoingRecord, openKafkaStream, type Stream } from '../src/stream/index.ts';
import { explain, type Ledger, openLedger, say } from './ledger.ts';
import { eventsOf, sharedKey, subscribeAll, type TestEvent } from './workload.ts';

const waves = 3;
const badPerWave = 10_000;
const goodPerWave = 40;
const mebibyte = 1_048_576;
const rss_bytes_max = 400 * mebibyte;
const growth_bytes_max = 50 * mebibyte;

describe.skipIf(!kafkaAvailable())('a stream full of rubbish', () => {
  let database: TestDatabase;
  let ledger: Ledger;
  let stream: Stream;
  let hub: HubProcess;
  const topic_prefix = `hostile${process.pid}.`;
  const topic = `${topic_prefix}midaz`;

  beforeAll(async () => {
    database = await createTestDatabase();
    stream = openKafkaStream({ brokers: kafkaBrokers(), client_id: 'test' });
    ledger = await openLedger();
    await witnessAdmin(kafkaBrokers(), (admin) =>
      admin.createTopics({
        waitForLeaders: true,
        topics: [
          {
            topic,
            numPartitions: 1,
            configEntries: [{ name: 'max.message.bytes', value: String(4 * mebibyte) }],
          },
        ],
      }),
    );
    hub = await startHubProcess({
      ENV: 'local',
      POSTGRES_DSN: database.dsn,
      KAFKA_BROKERS: kafkaBrokers().join(),
      KAFKA_GROUP: topic_prefix,
      TOPIC_PREFIX: topic_prefix,
      LOG_LEVEL: 'error',
      ...sharedKey,
    });
  });

  afterAll(async () => {
    await hub?.kill();
    hub?.discard();
    await ledger.receiver.close();
    await stream.close();
    await database.drop();
  });

  const toTopic = ({ headers, value }: Pick<OutgoingRecord, 'headers' | 'value'>) => ({
    topic,
    partition: 0,
    key: null,
    headers,
    value,
  });

  /** One event whose body is as large as a body may be. */
  function largest(): TestEvent {
    const [event] = eventsOf('t1', 1);
    if (!event) throw new Error('no event');
    const body = Buffer.from(JSON.stringify({ padding: 'x'.repeat(mebibyte - 14) }));
    expect(body.length).toBe(mebibyte);
    return { ...event, body, record: { ...event.record, value: body } };
  }

  /** Set aside so far, and where the partition has got to. */
  async function state(): Promise<{ quarantined: number; position: number }> {
    const answer = await database.pool.query<{ quarantined: number; position: number }>(
      `select (select count(*)::int from quarantine) as quarantined,
         (select next_offset from stream_positions where topic = $1) as position`,
      [topic],
    );
    return answer.rows[0] ?? { quarantined: 0, position: 0 };
  }

  const rss_bytes = () => {
    const line = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${hub.pid}/status`, 'utf8'));
    return Number(line?.[1]) * 1024;
  };

  test('good events arrive, bad ones are set aside, the partition moves on and memory stays flat', async () => {
    const wanted = await subscribeAll(hub, ledger.receiver, ['t1']);
    const kinds = malformedRecords().map((bad) => bad.record);
    const invalid = Buffer.from([0xff, 0xfe, 0xc3, 0x28]);
    kinds.push(
      { topic, headers: [], value: Buffer.alloc(0) },
      { topic, headers: [], value: null },
      { topic, headers: [[invalid, invalid]], value: Buffer.from('{}') },
      { topic, headers: [[Buffer.from('ce-id'), invalid]], value: invalid },
    );
    const small = kinds.filter((record) => (record.value?.length ?? 0) < mebibyte);
    const large = kinds.filter((record) => (record.value?.length ?? 0) >= mebibyte);
    const events: TestEvent[] = [];
    const after_bytes: number[] = [];
    let peak_bytes = 0;
    const watch = setInterval(() => (peak_bytes = Math.max(peak_bytes, rss_bytes())), 50);
    let published = 0;

    for (let wave = 0; wave < waves; wave += 1) {
      const good = [...eventsOf('t1', goodPerWave - 1), largest()];
      events.push(...good);
      const bad = Array.from({ length: badPerWave }, (_, n) => small[n % small.length] as never);
      // A good one now and then, and 10 000 bad ones in a row between the halves.
      const records = [
        ...good.slice(0, goodPerWave / 2).flatMap((event, n) => [event.record, small[n] as never]),
        ...bad,
        ...large,
        ...good.slice(goodPerWave / 2).map((event) => event.record),
      ].map(toTopic);
      published += records.length;
      await stream.publish(records);
      await until(async () => (await state()).position === published, 60_000);
      await until(() => ledger.distinct() >= events.length * 3, 30_000).catch(() => undefined);
      after_bytes.push(rss_bytes());
    }
    clearInterval(watch);

    const arrivals = ledger.reckon(wanted, events);
    const { quarantined, position } = await state();
    const megabytes = after_bytes.map((bytes) => Math.round(bytes / mebibyte)).join(' ');
    say(
      `${position} records, ${quarantined} set aside, ${events.length * 3} deliveries`,
      arrivals,
      `; resident memory after each wave ${megabytes}, peak ${Math.round(peak_bytes / mebibyte)} MiB`,
    );
    if (arrivals.lost.length > 0) await explain(database.pool, [hub]);
    expect({ ...arrivals, lost: arrivals.lost.slice(0, 3) }).toEqual({
      lost: [],
      duplicates: 0,
      overtaken: 0,
    });
    expect(position).toBe(published);
    const kept = await database.pool.query<{ n: number }>(
      'select count(*)::int as n from event_inbox',
    );
    expect(kept.rows[0]?.n).toBe(events.length);
    expect(quarantined).toBeGreaterThan(waves * badPerWave * 0.9);
    expect(peak_bytes).toBeLessThan(rss_bytes_max);
    // The first wave warms up: code is compiled, pools and buffers get their size.
    expect((after_bytes.at(-1) ?? 0) - (after_bytes[1] ?? 0)).toBeLessThan(growth_bytes_max);
    expect((await hub.request('GET', '/readyz')).status).toBe(200);
  }, 240_000);
});
