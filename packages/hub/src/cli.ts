#!/usr/bin/env node
import { Command, Option } from 'commander';
import {
  createApiKey,
  listApiKeys,
  type Permission,
  permissions,
  revokeApiKey,
} from './auth/index.ts';
import { createLog } from './base/index.ts';
import { runDemo } from './demo/index.ts';
import { createHub } from './main.ts';
import { serve } from './serve.ts';
import { readSettings, SettingsError } from './settings/index.ts';
import { migrate, openPool, StoreError, startEmbeddedPostgres } from './store/index.ts';
import { version } from './version.ts';

/** The commands of `streaming-hub`. Exit codes: 0 done, 1 failed, 2 wrong settings or arguments. */
const program = new Command('streaming-hub')
  .description('Carries events from the internal stream to the people outside.')
  .version(version)
  .showHelpAfterError();

program
  .command('start')
  .description(
    'Run the hub. Settings come from STREAMING_HUB_* variables (docs/reference/settings.md).',
  )
  .action(async () => {
    process.exitCode = await serve(process.env);
  });

program
  .command('demo')
  .description('A hub, three receivers and a producer in a temporary folder; nothing stays behind.')
  .option('--seconds <n>', 'end by itself after so many seconds', positiveNumber)
  .action(async (options: { seconds?: number }) => {
    process.exitCode = await runDemo({
      seconds: options.seconds ?? null,
      openHub: (environment) =>
        createHub(readSettings(environment), createLog({ level: 'silent' })),
    });
  });

const keys = program.command('keys').description('API keys.');

keys
  .command('create')
  .description('Make a key and print it; it is shown this once.')
  .requiredOption('--tenant <id>', 'the tenant it acts for')
  .addOption(new Option('--permission <permission>').choices([...permissions]).default('admin'))
  .action(async (options: { tenant: string; permission: Permission }) => {
    await withPool(async (pool) => {
      const made = await createApiKey(pool, {
        tenant_id: options.tenant,
        permission: options.permission,
      });
      console.log(made.key);
      console.error(
        `Key ${made.id} of tenant ${made.tenant_id}, permission ${made.permission}. Keep it: it is not shown again.`,
      );
    });
  });

keys
  .command('list')
  .description('The keys of a tenant.')
  .requiredOption('--tenant <id>')
  .action(async (options: { tenant: string }) => {
    await withPool(async (pool) =>
      console.log(JSON.stringify(await listApiKeys(pool, options.tenant), null, 2)),
    );
  });

keys
  .command('revoke <id>')
  .description('End a key.')
  .action(async (id: string) => {
    await withPool(async (pool) => {
      if (await revokeApiKey(pool, id)) console.log(`Key ${id} is revoked.`);
      else throw new StoreError('not_found' as never, `There is no live key ${id}.`);
    });
  });

/** The hub's database, without starting the hub: an embedded one must not be open in a running hub. */
async function withPool(work: (pool: ReturnType<typeof openPool>) => Promise<void>): Promise<void> {
  const settings = readSettings(process.env);
  const embedded = settings.embeddedPostgres
    ? await startEmbeddedPostgres({ data_dir: settings.dataDir })
    : null;
  const pool = openPool(embedded?.config ?? { connectionString: settings.postgresDsn ?? '' }, {
    application_name: 'streaming-hub cli',
    max: 2,
  });
  try {
    await migrate(pool);
    await work(pool);
  } finally {
    await pool.end();
    await embedded?.stop();
  }
}

function positiveNumber(text: string): number {
  const number = Number(text);
  if (!Number.isFinite(number) || number <= 0)
    throw new SettingsError('--seconds', `--seconds must be a positive number, not "${text}".`);
  return number;
}

try {
  await program.parseAsync();
} catch (error) {
  const expected =
    error instanceof SettingsError || error instanceof StoreError || error instanceof RangeError;
  console.error(expected ? error.message : error);
  process.exitCode = error instanceof SettingsError ? 2 : 1;
}
