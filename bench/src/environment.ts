import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openPool, startEmbeddedPostgres } from '@streaming-hub/hub/store';
import { type KafkaCluster, kafkaStartable, startKafka } from '@streaming-hub/testkit';
import pg from 'pg';
import { onCleanup, prefer } from './cleanup.ts';
import { descendantNamed } from './processes.ts';
import { type Receiver, startReceiver } from './receiver.ts';

export interface BenchOptions {
  /** About a tenth of the size. */
  readonly quick: boolean;
  /** Measure so often; the medians are reported. */
  readonly repeat: number;
  /** Where CPU profiles of the hub and statement statistics go; null = not taken. */
  readonly profile: string | null;
}

export interface BenchDatabase {
  readonly dsn: string;
  readonly pool: pg.Pool;
  drop(): Promise<void>;
}

/** What all scenarios use: one Postgres, one Kafka, one receiver, each in processes of their own. */
export interface Bench {
  readonly options: BenchOptions;
  readonly folder: string;
  readonly kek: string;
  readonly receiver: Receiver;
  readonly postgres_pid: number;
  /** Null where Java is missing: then the embedded stream takes its place, and the report says so. */
  kafka(): Promise<{ brokers: string[]; pid: number | null } | null>;
  database(name: string): Promise<BenchDatabase>;
}

export async function openBench(options: BenchOptions): Promise<Bench> {
  const folder = mkdtempSync(join(tmpdir(), 'streaming-hub-bench-'));
  onCleanup(() => rmSync(folder, { recursive: true, force: true }));
  // Postgres runs as another user when we are root.
  chmodSync(folder, 0o755);
  const postgres = await startEmbeddedPostgres({
    data_dir: join(folder, 'postgres'),
    settings: {
      shared_buffers: '256MB',
      max_wal_size: '4GB',
      synchronous_commit: 'on',
      ...(options.profile && {
        shared_preload_libraries: 'pg_stat_statements',
        'pg_stat_statements.track': 'all',
      }),
    },
  });
  prefer(postgres.pid);
  onCleanup(() => postgres.stop());
  const receiver = await startReceiver();
  let cluster: Promise<KafkaCluster> | null = null;

  return {
    options,
    folder,
    kek: randomBytes(32).toString('base64'),
    receiver,
    postgres_pid: postgres.pid,
    async kafka() {
      if (!kafkaStartable()) return null;
      if (!cluster) {
        cluster = startKafka();
        onCleanup(async () => (await cluster)?.stop());
      }
      const { brokers } = await cluster;
      const pid = descendantNamed('java');
      prefer(pid);
      return { brokers, pid };
    },
    async database(name) {
      await administer(postgres.config, `create database ${name}`);
      const { host, port, user } = postgres.config;
      const place = `host=${encodeURIComponent(String(host))}&port=${port}`;
      const dsn = `postgres://${user}@localhost/${name}?${place}`;
      const pool = openPool(
        { connectionString: dsn },
        { application_name: 'bench', max: 4, statement_timeout_ms: 0 },
      );
      if (options.profile) await pool.query('create extension pg_stat_statements');
      return {
        dsn,
        pool,
        async drop() {
          await pool.end();
          await administer(postgres.config, `drop database ${name} with (force)`);
        },
      };
    },
  };
}

async function administer(config: pg.PoolConfig, statement: string): Promise<void> {
  const client = new pg.Client(config);
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}
