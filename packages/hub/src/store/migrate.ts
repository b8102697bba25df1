import { Kysely, PostgresDialect, sql } from 'kysely';
import { Migrator } from 'kysely/migration';
import type pg from 'pg';
import { StoreError } from './error.ts';
import { migrations as ownMigrations } from './migrations/index.ts';

const migration_table = 'schema_migrations';
const lock_table = 'schema_migrations_lock';

/** Held by the one process that migrates; the others wait for it. */
const migration_lock = [1398096, 4] as const;

/**
 * Brings the database to the newest schema of this program; safe when many processes start at once.
 * All pending migrations run in one transaction, so a failure leaves the old schema.
 * @throws StoreError `database_newer` | `migration_failed`
 */
export async function migrate(
  pool: pg.Pool,
  migrations: Readonly<Record<string, string>> = ownMigrations,
): Promise<void> {
  const client = await pool.connect();
  try {
    withoutTimeout(client);
    await client.query('set statement_timeout = 0');
    await client.query('set idle_in_transaction_session_timeout = 0');
    await client.query('select pg_advisory_lock($1, $2)', [...migration_lock]);
    await refuseNewerDatabase(client, migrations);
    await runMigrations(client, migrations);
  } finally {
    // Closing the connection gives the lock and the settings back.
    client.release(true);
  }
}

async function refuseNewerDatabase(
  client: pg.PoolClient,
  known: Readonly<Record<string, string>>,
): Promise<void> {
  const found = await client.query<{ present: boolean }>(
    'select to_regclass($1) is not null as present',
    [migration_table],
  );
  if (!found.rows[0]?.present) return;
  const applied = await client.query<{ name: string }>(
    /* sql */ `select name from ${migration_table} order by name`,
  );
  const unknown = applied.rows.map((row) => row.name).filter((name) => !(name in known));
  if (unknown.length === 0) return;
  throw new StoreError(
    'database_newer',
    `The database was migrated by a newer version of the hub (it has ${unknown.join(', ')}, which this version does not know); start that version or a newer one.`,
  );
}

async function runMigrations(
  client: pg.PoolClient,
  migrations: Readonly<Record<string, string>>,
): Promise<void> {
  const db = new Kysely<unknown>({
    dialect: new PostgresDialect({ pool: onlyThisClient(client) }),
  });
  const migrator = new Migrator({
    db,
    migrationTableName: migration_table,
    migrationLockTableName: lock_table,
    provider: {
      getMigrations: async () =>
        Object.fromEntries(
          Object.entries(migrations).map(([name, text]) => [
            name,
            { up: async (target) => void (await sql.raw(text).execute(target)) },
          ]),
        ),
    },
  });
  const { error, results } = await migrator.migrateToLatest();
  if (error === undefined) return;
  const failed = results?.find((result) => result.status === 'Error')?.migrationName ?? 'unknown';
  const reason = error instanceof Error ? error.message : JSON.stringify(error);
  throw new StoreError(
    'migration_failed',
    `Migration ${failed} failed, the database keeps its earlier schema: ${reason}`,
    { cause: error },
  );
}

/** Kysely takes connections from a pool; here that pool is the one connection that holds the lock. */
function onlyThisClient(client: pg.PoolClient) {
  const borrowed = new Proxy(client, {
    get: (target, key) => {
      if (key === 'release') return () => {};
      const value: unknown = Reflect.get(target, key);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
  return { connect: async () => borrowed, end: async () => {}, options: {} };
}

/** A migration takes as long as it takes; this connection is closed afterwards. */
function withoutTimeout(client: pg.PoolClient): void {
  const { connectionParameters } = client as unknown as {
    connectionParameters: { query_timeout?: number };
  };
  connectionParameters.query_timeout = 0;
}
