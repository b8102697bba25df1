import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import {
  createTestDatabase,
  freePort,
  type KafkaCluster,
  kafkaStartable,
  startHubProcess,
  startKafka,
  type TestDatabase,
  until,
} from '@streaming-hub/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openKafkaStream } from '../src/stream/index.ts';
import { blocksOf } from './documents/blocks.ts';
import { repository, runPage } from './documents/run.ts';
import { sharedKey } from './workload.ts';

const run = promisify(execFile);

describe.skipIf(!kafkaStartable())('pages that need Kafka', () => {
  let kafka: KafkaCluster;
  let database: TestDatabase;

  beforeAll(async () => {
    [kafka, database] = await Promise.all([startKafka({ security: true }), createTestDatabase()]);
    const stream = openKafkaStream({ brokers: kafka.brokers, client_id: 'test' });
    await stream.ensureTopics([{ name: 'lerian.streaming.ledger', partitions: 3 }]);
    await stream.close();
  });

  afterAll(async () => {
    await kafka?.stop();
    await database?.drop();
  });

  test('the guide operate works as it stands, in production', async () => {
    const { security } = kafka;
    if (!security) throw new Error('Kafka has no secured listener');
    const replacements = {
      'postgres://hub:secret@db.internal:5432/hub?sslmode=verify-full': database.dsn,
      'kafka-1.internal:9093,kafka-2.internal:9093': security.sasl_tls,
      'SCRAM_USERNAME=hub': `SCRAM_USERNAME=${security.username}`,
      'kafka-secret': security.password,
      '127.0.0.1:8090': `127.0.0.1:${await freePort()}`,
      '127.0.0.1:8091': `127.0.0.1:${await freePort()}`,
    };
    const files = { 'kafka-ca.pem': security.ca };
    const { code, output } = await runPage('docs/guide/operate.md', { replacements, files });
    expect(code, output).toBe(0);
  }, 150_000);

  test('the producer of the guide publish-events publishes', async () => {
    const hub = await startHubProcess({
      ENV: 'local',
      POSTGRES_DSN: database.dsn,
      KAFKA_BROKERS: kafka.brokers.join(),
      RECONCILER_INTERVAL: '1s',
      ...sharedKey,
    });
    // Below the repository's modules, where the page's imports are found.
    const folder = mkdtempSync(join(tmpdir(), 'hub-page-'));
    try {
      symlinkSync(join(repository, 'node_modules'), join(folder, 'node_modules'));
      const page = readFileSync(join(repository, 'docs/guide/publish-events.md'), 'utf8');
      const program = blocksOf(page).find(({ marks }) => marks[0] === 'publish.mjs');
      writeFileSync(join(folder, 'publish.mjs'), program?.text ?? '');
      await run(process.execPath, ['publish.mjs'], {
        cwd: folder,
        env: { ...process.env, STREAMING_HUB_KAFKA_BROKERS: kafka.brokers.join() },
      });
      const stored = await until(async () => {
        const answer = await hub.request('GET', '/v1/events', undefined, { 'x-tenant-id': 'acme' });
        const [event] = answer.body['data'] as Record<string, unknown>[];
        return event ?? null;
      }, 30_000);
      expect(stored).toMatchObject({ subject: 'acc-1', data: { owner: 'Ada' } });
    } finally {
      await hub.stop();
      hub.discard();
      rmSync(folder, { recursive: true, force: true });
    }
  }, 120_000);
});
