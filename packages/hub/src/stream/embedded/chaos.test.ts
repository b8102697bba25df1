import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { until } from '@streaming-hub/testkit';
import { expect, test } from 'vitest';
import { wait } from '../../base/index.ts';
import { migrate, openPool, startEmbeddedPostgres } from '../../store/index.ts';
import { openEmbeddedStream } from './index.ts';

const partitions = 4;

test('Postgres is killed again and again under load: nothing acknowledged is lost, the order holds', {
  timeout: 120_000,
}, async () => {
  const data_dir = mkdtempSync(join(tmpdir(), 'hub-chaos-'));
  const postgres = await startEmbeddedPostgres({ data_dir });
  const pool = openPool(postgres.config, { application_name: 'chaos' });
  await migrate(pool);
  await pool.end();
  const streams = [0, 1].map(() =>
    openEmbeddedStream({ database: postgres.config, lease_ms: 3000 }),
  );
  const [publisher, reader] = streams as [(typeof streams)[0], (typeof streams)[0]];
  await publisher.ensureTopics([{ name: 'chaos', partitions }]);

  const acknowledged = new Map<string, string>();
  const handled = new Map<string, string>();
  const problems: string[] = [];
  const next = new Map<number, number>();
  const faults: Error[] = [];
  const consumer = reader.consume({
    group: 'chaos',
    topics: /chaos/,
    refresh_interval_ms: 60_000,
    batch_records_max: 100,
    batch_bytes_max: 100_000,
    buffered_bytes_max: 1_000_000,
    loadPositions: async (assigned) => {
      for (const { partition } of assigned) next.delete(partition);
      return new Map();
    },
    onFault: (fault) => void faults.push(fault),
    onBatch: async ({ partition, records }) => {
      for (const { offset, value } of records) {
        const expected = next.get(partition);
        if (expected !== undefined && expected !== offset)
          problems.push(`${partition}: ${offset}, not ${expected}`);
        next.set(partition, offset + 1);
        handled.set(`${partition}/${offset}`, value?.toString() ?? '');
      }
      return (records.at(-1)?.offset ?? 0) + 1;
    },
  });
  await consumer.start();

  let loading = true;
  let sent = 0;
  let refused = 0;
  const load = [0, 1, 2].map(async () => {
    while (loading) {
      const value = `${sent++}`;
      const record = {
        topic: 'chaos',
        partition: sent % partitions,
        key: null,
        value: Buffer.from(value),
        headers: [],
      };
      try {
        const [at] = await publisher.publish([record]);
        acknowledged.set(`${at?.partition}/${at?.offset}`, value);
      } catch {
        refused++;
        await wait(20);
      }
    }
  });

  for (let kill = 0; kill < 3; kill++) {
    const before = acknowledged.size;
    await until(() => acknowledged.size > before + 100, 20_000);
    process.kill(postgres.pid, 'SIGKILL');
    await until(() => !consumer.healthy());
  }
  const before = acknowledged.size;
  await until(() => acknowledged.size > before + 100, 20_000);
  loading = false;
  await Promise.all(load);
  await until(() => [...acknowledged.keys()].every((key) => handled.has(key)), 20_000);
  for (const [key, value] of acknowledged) expect(handled.get(key)).toBe(value);
  expect(problems).toEqual([]);
  expect(refused).toBeGreaterThan(0);
  await until(() => consumer.healthy());
  await consumer.stop();
  await Promise.all(streams.map((stream) => stream.close()));
  await postgres.stop();
  rmSync(data_dir, { recursive: true, force: true });
});
