import { randomUUID } from 'node:crypto';
import { defaultRules, encodeRecord } from '@streaming-hub/contract';
import { createTestDatabase, kafkaAvailable, kafkaBrokers, until } from '@streaming-hub/testkit';
import { describe, expect, test } from 'vitest';
import { openKafkaStream } from '../stream/index.ts';
import { createIngest } from './index.ts';
import { attributesOf, countingMetrics, countOf, quiet, rowsOf, subscribe } from './testing.ts';

const open = (client_id: string) =>
  openKafkaStream({
    brokers: kafkaBrokers(),
    client_id,
    group: { session_timeout_ms: 6_000, heartbeat_interval_ms: 200 },
  });

describe.skipIf(!kafkaAvailable())('from Kafka', () => {
  test('two processes join, leave and share partitions while records arrive: all stored once, in order of their partition', async () => {
    const db = await createTestDatabase();
    const origin = `app-${randomUUID().slice(0, 8)}`;
    const rules = { ...defaultRules, topic_prefix: `hub-test-${randomUUID().slice(0, 8)}.` };
    const topic = `${rules.topic_prefix}${origin}`;
    const [publisher, one, two] = [open('publisher'), open('one'), open('two')];
    await publisher.ensureTopics([{ name: topic, partitions: 4 }]);
    await subscribe(db.pool);
    const start = (stream: typeof one) => {
      const { metrics, counts } = countingMetrics();
      const ingest = createIngest({
        pool: db.pool,
        stream,
        rules,
        group: `group-${origin}`,
        metrics,
        log: quiet,
        limits: { batch_records_max: 20 },
        refresh_interval_ms: 60_000,
      });
      return { ingest, counts };
    };
    const [a, b] = [start(one), start(two)];
    const sent: string[][] = [[], [], [], []];
    const publish = async (count: number) => {
      const batch = Array.from({ length: count }, (_, index) => {
        const attributes = attributesOf({ source: origin });
        const partition = index % 4;
        sent[partition]?.push(attributes['id'] ?? '');
        return { ...encodeRecord(attributes, Buffer.from('{}'), rules), topic, partition };
      });
      await publisher.publish(batch);
    };
    try {
      await publish(200);
      await a.ingest.start();
      const joining = b.ingest.start();
      for (let round = 0; round < 10; round++) await publish(40);
      await joining;
      await until(async () => (await countOf(db.pool, 'event_inbox')) === 600, 30_000);
      const leaving = a.ingest.stop();
      for (let round = 0; round < 10; round++) await publish(40);
      await leaving;
      await until(async () => (await countOf(db.pool, 'event_inbox')) === 1000, 30_000);

      expect((a.counts['stored'] ?? 0) + (b.counts['stored'] ?? 0)).toBe(1000);
      expect((a.counts['duplicates'] ?? 0) + (b.counts['duplicates'] ?? 0)).toBe(0);
      expect(await countOf(db.pool, 'deliveries')).toBe(1000);
      const rows = await rowsOf<{ ce_id: string }>(
        db.pool,
        'select ce_id from event_inbox order by seq',
      );
      const arrived = rows.map((row) => row.ce_id);
      for (const ids of sent) {
        const wanted = new Set(ids);
        expect(arrived.filter((id) => wanted.has(id))).toEqual(ids);
      }
    } finally {
      await Promise.all([a.ingest.stop(), b.ingest.stop()]);
      await Promise.all([publisher.close(), one.close(), two.close()]);
      await db.drop();
    }
  });
});
