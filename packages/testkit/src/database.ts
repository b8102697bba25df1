import { createHash, randomBytes } from 'node:crypto';
import {
  ensurePartitions,
  migrate,
  migrations,
  openPool,
  weekNumber,
} from '@streaming-hub/hub/store';
import pg from 'pg';

const template_lock = [1398096, 99] as const;
const pool_connections_max = 10;
let template: Promise<string> | undefined;

export interface TestDatabase {
  config: pg.PoolConfig;
  dsn: string;
  pool: pg.Pool;
  /** Closes the pool and removes the database. Idempotent. */
  drop(): Promise<void>;
}

/** A database of its own with the newest schema and this week's partitions, on the run's one Postgres. */
export async function createTestDatabase(): Promise<TestDatabase> {
  const admin = adminDsn();
  template ??= provideTemplate(admin);
  return createFrom(admin, await template);
}

/** A database without any schema, for tests of the migrations themselves. */
export async function createEmptyDatabase(): Promise<TestDatabase> {
  return createFrom(adminDsn(), 'template0');
}

// Copying files took half the time of copying through the log (160, not 290 ms).
async function createFrom(admin: string, source: string): Promise<TestDatabase> {
  const name = `hub_test_${process.pid}_${randomBytes(5).toString('hex')}`;
  await withAdmin(admin, (client) =>
    client.query(`create database ${name} template ${source} strategy file_copy`),
  );
  const dsn = withDatabase(admin, name);
  const config: pg.PoolConfig = { connectionString: dsn };
  const pool = openPool(config, { application_name: 'test', max: pool_connections_max });
  let dropped: Promise<void> | undefined;
  const drop = async () => {
    if (!pool.ended) await pool.end();
    await withAdmin(admin, (client) =>
      client.query(`drop database if exists ${name} with (force)`),
    );
  };
  return { config, dsn, pool, drop: () => (dropped ??= drop()) };
}

/** Its name holds what it was made from, so that a server that lives longer than a run never offers an old one. */
function templateName(): string {
  const digest = createHash('sha256').update(JSON.stringify(migrations)).digest('hex');
  return `hub_template_${digest.slice(0, 12)}_w${weekNumber(Date.now())}`;
}

/** Made once, under a lock, by whoever comes first; it gets its name only when complete. */
async function provideTemplate(admin: string): Promise<string> {
  const name = templateName();
  await withAdmin(admin, async (client) => {
    if (await exists(client, name)) return;
    await client.query('select pg_advisory_lock($1, $2)', [...template_lock]);
    if (await exists(client, name)) return;
    const unfinished = `${name}_unfinished`;
    await client.query(`drop database if exists ${unfinished} with (force)`);
    await client.query(`create database ${unfinished} template template0`);
    const pool = openPool(
      { connectionString: withDatabase(admin, unfinished) },
      { application_name: 'template', max: 1 },
    );
    try {
      await migrate(pool);
      await ensurePartitions(pool);
    } finally {
      await pool.end();
    }
    await client.query(`alter database ${unfinished} rename to ${name}`);
  });
  return name;
}

async function exists(client: pg.Client, name: string): Promise<boolean> {
  const found = await client.query('select 1 from pg_database where datname = $1', [name]);
  return found.rowCount === 1;
}

async function withAdmin<T>(dsn: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: dsn });
  client.on('error', () => {});
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

function adminDsn(): string {
  const dsn = process.env['TEST_POSTGRES_DSN'];
  if (!dsn)
    throw new Error(
      'TEST_POSTGRES_DSN is not set: run tests through vitest, whose global setup starts a Postgres',
    );
  return dsn;
}

function withDatabase(dsn: string, name: string): string {
  const url = new URL(dsn);
  url.pathname = `/${name}`;
  return url.href;
}
