import { spawn } from 'node:child_process';
import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { until } from '@streaming-hub/testkit';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { startEmbeddedPostgres } from '../index.ts';
import { type HubProcess, runHub } from './fixtures/run.ts';
import { canReach } from './identity.ts';
import { isRunning } from './processes.ts';

const isRoot = process.getuid?.() === 0;
const nobody = { uid: 65_534, gid: 65_534 };
/** Other users can run this Node and these sources; not so in a clone below root's home. */
const othersCanRun =
  isRoot &&
  [process.execPath, import.meta.filename].every((path) => canReach(dirname(path), nobody));
let folder: string;
const hubs: HubProcess[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'hub-embedded-'));
});

afterEach(async () => {
  for (const hub of hubs.splice(0))
    if (hub.child.exitCode === null && hub.child.signalCode === null) await hub.end('SIGTERM');
  rmSync(folder, { recursive: true, force: true });
});

async function hub(data_dir: string, options?: Parameters<typeof runHub>[1]): Promise<HubProcess> {
  const started = await runHub(data_dir, options);
  hubs.push(started);
  return started;
}

async function query<T extends pg.QueryResultRow>(
  config: pg.PoolConfig,
  text: string,
): Promise<T[]> {
  const client = new pg.Client(config);
  await client.connect();
  try {
    return (await client.query<T>(text)).rows;
  } finally {
    await client.end();
  }
}

async function writtenRows(data_dir: string): Promise<Set<number>> {
  const postgres = await startEmbeddedPostgres({ data_dir });
  try {
    const rows = await query<{ number: number }>(
      postgres.config,
      'select number::integer from written',
    );
    return new Set(rows.map((row) => row.number));
  } finally {
    await postgres.stop();
  }
}

describe('an embedded Postgres', () => {
  test('is durable, listens on its socket only, keeps data between starts and stops for good', async () => {
    const data_dir = join(folder, 'data');
    const first = await startEmbeddedPostgres({ data_dir });
    const pid = first.pid;
    const rows = await query<{ setting: string }>(
      first.config,
      "select setting from pg_settings where name in ('data_checksums', 'fsync', 'listen_addresses', 'synchronous_commit') order by name",
    );
    expect(rows.map((row) => row.setting)).toEqual(['on', 'on', '', 'on']);
    await query(first.config, 'create table kept as select 7 as number');
    await Promise.all([first.stop(), first.stop()]);
    expect(isRunning(pid)).toBe(false);
    expect(existsSync(join(first.config.host ?? '', '.s.PGSQL.5432'))).toBe(false);

    const second = await startEmbeddedPostgres({ data_dir });
    expect(await query(second.config, 'select number from kept')).toEqual([{ number: 7 }]);
    await second.stop();
  });

  test('lets nobody but its user at the socket', async () => {
    const postgres = await startEmbeddedPostgres({ data_dir: folder });
    expect(statSync(postgres.config.host ?? '').mode & 0o777).toBe(0o700);
    await postgres.stop();
  });

  test('works in a folder whose path is too long for a socket', async () => {
    const data_dir = join(folder, 'long'.repeat(25), 'data');
    const postgres = await startEmbeddedPostgres({ data_dir });
    expect(await query(postgres.config, 'select 1 as one')).toEqual([{ one: 1 }]);
    await postgres.stop();
  });

  test.runIf(isRoot)('run by root, works below a folder that only root may enter', async () => {
    const data_dir = join(folder, 'closed', 'data');
    mkdirSync(join(folder, 'closed'), { mode: 0o700 });
    const postgres = await startEmbeddedPostgres({ data_dir });
    await query(postgres.config, 'create table here as select 1 as one; checkpoint');
    expect(statSync(`/proc/${postgres.pid}`).uid).not.toBe(0);
    await postgres.stop();
  });

  test.runIf(othersCanRun)(
    'works for an ordinary user, and below a folder that only this user may enter',
    async () => {
      chownSync(folder, 65_534, 65_534);
      const data_dir = join(folder, 'data');
      const { up } = await hub(data_dir, { uid: 65_534 });
      expect(up.error).toBeUndefined();
      expect(statSync(`/proc/${up.postgres}`).uid).toBe(65_534);
    },
  );

  test.runIf(othersCanRun)('says what is wrong to a user without an entry in passwd', async () => {
    chownSync(folder, 54_321, 54_321);
    const { up } = await hub(join(folder, 'data'), { uid: 54_321 });
    expect(up.error).toMatch(/User 54321 has no entry in \/etc\/passwd/);
  });

  test('refuses a folder made by another major version', async () => {
    await (await startEmbeddedPostgres({ data_dir: folder })).stop();
    writeFileSync(join(folder, 'postgres', 'cluster', 'PG_VERSION'), '17\n');
    await expect(startEmbeddedPostgres({ data_dir: folder })).rejects.toThrow(
      /was made by Postgres 17, this hub carries Postgres 18/,
    );
  });
});

describe('two hubs on one folder', () => {
  test('the second is refused and told whose folder it is', async () => {
    const { up } = await hub(folder);
    await expect(startEmbeddedPostgres({ data_dir: folder })).rejects.toThrow(
      new RegExp(`in use by another hub \\(process ${up.pid}\\)`),
    );
  });

  test('of two started at once exactly one comes up', async () => {
    for (let round = 0; round < 3; round++) {
      const both = await Promise.all([hub(folder), hub(folder)]);
      const refused = both.filter(({ up }) => up.error !== undefined);
      expect(refused.map(({ up }) => up.code)).toEqual(['folder_in_use']);
      await Promise.all(both.map((one) => one.end('SIGTERM')));
    }
  });
});

describe('kill -9', () => {
  test('of Postgres under writes: it comes back by itself and no acknowledged row is lost', async () => {
    const writer = await hub(folder, { write: true });
    for (let kill = 0; kill < 3; kill++) {
      const before = writer.written.length;
      await until(() => writer.written.length > before + 50);
      const pid = Number.parseInt(
        readFileSync(join(folder, 'postgres', 'cluster', 'postmaster.pid'), 'utf8'),
        10,
      );
      process.kill(pid, 'SIGKILL');
      const atKill = writer.written.length;
      await until(() => writer.written.length > atKill + 50, 20_000);
    }
    await writer.end('SIGTERM');
    const rows = await writtenRows(folder);
    expect(writer.written.filter((number) => !rows.has(number))).toEqual([]);
  });

  test('of the hub under writes: Postgres ends with it, the next start has every acknowledged row', async () => {
    const writer = await hub(folder, { write: true });
    await until(() => writer.written.length > 100);
    await writer.end('SIGKILL');
    const rows = await writtenRows(folder);
    expect(isRunning(writer.up.postgres)).toBe(false);
    expect(writer.written.filter((number) => !rows.has(number))).toEqual([]);
  });

  test('of the hub where Postgres cannot be tied to it: the next start stops the one left running', async () => {
    // Without a PATH there is neither setpriv nor flock; the lock is then a socket's name.
    const writer = await hub(folder, { write: true, env: { PATH: '/nowhere' } });
    await until(() => writer.written.length > 50);
    await writer.end('SIGKILL');
    expect(isRunning(writer.up.postgres)).toBe(true);
    const rows = await writtenRows(folder);
    expect(isRunning(writer.up.postgres)).toBe(false);
    expect(writer.written.filter((number) => !rows.has(number))).toEqual([]);
  });

  test('of a hub and its successor in turn: each takes the folder over', async () => {
    for (let round = 0; round < 3; round++) {
      const next = await hub(folder);
      expect(next.up.error).toBeUndefined();
      await next.end('SIGKILL');
    }
    await (await startEmbeddedPostgres({ data_dir: folder })).stop();
  });
});

describe('a pid file left behind', () => {
  async function startWithPid(pid: number): Promise<void> {
    await (await startEmbeddedPostgres({ data_dir: folder })).stop();
    writeFileSync(
      join(folder, 'postgres', 'cluster', 'postmaster.pid'),
      `${pid}\n${folder}\n1\n5432\n\n\n\n`,
    );
    const postgres = await startEmbeddedPostgres({ data_dir: folder });
    await postgres.stop();
  }

  test("that names a stranger's process does not prevent a start", () => startWithPid(1));

  test('that names a zombie does not prevent a start', async () => {
    // The shell becomes `sleep`, which never collects the shell's ended child.
    const parent = spawn('sh', ['-c', 'sleep 0.2 & echo $!; exec sleep 60'], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    let said = '';
    parent.stdout.on('data', (chunk: Buffer) => (said += chunk.toString()));
    try {
      const zombie = await until(() => Number.parseInt(said, 10));
      await until(() => !isRunning(zombie));
      expect(existsSync(`/proc/${zombie}`)).toBe(true);
      await startWithPid(zombie);
    } finally {
      parent.kill();
    }
  });
});
