import { spawn } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { join } from 'node:path';
import { StoreError } from '../error.ts';
import type { Binaries } from './binaries.ts';
import { runOn } from './command.ts';
import { giveTo, type Identity } from './identity.ts';
import type { DataPaths } from './paths.ts';

export const superuser = 'streaming_hub';
const output_chars_max = 4_000;

/** Makes the cluster when there is none; checks that these binaries can open it when there is one. */
export async function provideCluster(
  paths: DataPaths,
  binaries: Binaries,
  identity: Identity | undefined,
): Promise<void> {
  mkdirSync(paths.root, { recursive: true, mode: 0o700 });
  rmSync(paths.unfinished, { recursive: true, force: true });
  if (!existsSync(join(paths.cluster, 'PG_VERSION'))) await makeCluster(paths, binaries, identity);
  if (identity) giveTo(paths.root, identity);
  checkVersion(paths.cluster, binaries.version);
}

async function makeCluster(
  paths: DataPaths,
  binaries: Binaries,
  identity: Identity | undefined,
): Promise<void> {
  mkdirSync(paths.unfinished, { mode: 0o700 });
  if (identity) {
    chownSync(paths.root, identity.uid, identity.gid);
    chownSync(paths.unfinished, identity.uid, identity.gid);
  }
  chmodSync(paths.root, 0o700);
  const { argument, ...where } = runOn(paths.unfinished, identity);
  const options = [
    `--pgdata=${argument}`,
    `--username=${superuser}`,
    // Only the owner of the socket's folder gets in, see server.ts.
    '--auth=trust',
    '--encoding=UTF8',
    '--locale-provider=builtin',
    '--builtin-locale=C.UTF-8',
    '--locale=C',
    // A container's shared memory may be smaller than Postgres wants.
    '--set=dynamic_shared_memory_type=mmap',
  ];
  const { code, output } = await run(join(binaries.native, 'bin', 'initdb'), options, where);
  if (code !== 0) throw initdbFailed(code, output, identity);
  renameSync(paths.unfinished, paths.cluster);
  syncFolder(paths.root);
}

function initdbFailed(
  code: number | null,
  output: string,
  identity: Identity | undefined,
): StoreError {
  if (output.includes('could not look up effective user ID')) {
    const uid = identity?.uid ?? process.getuid?.();
    return new StoreError(
      'embedded_unavailable',
      `User ${uid} has no entry in /etc/passwd, and Postgres cannot make a new database without one; run the hub as a user that has one, or set STREAMING_HUB_POSTGRES_DSN.`,
    );
  }
  return new StoreError(
    'embedded_failed',
    `Postgres could not make its database (initdb ended with ${code}): ${output}`,
  );
}

function run(
  program: string,
  args: string[],
  options: { cwd: string; uid?: number; gid?: number },
): Promise<{ code: number | null; output: string }> {
  return new Promise((resolve, reject) => {
    let output = '';
    const child = spawn(program, args, {
      ...options,
      env: postgresEnvironment(),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const collect = (chunk: Buffer) => {
      output = (output + chunk.toString()).slice(-output_chars_max);
    };
    child.stdout.on('data', collect);
    child.stderr.on('data', collect);
    child.once('error', (cause) =>
      reject(
        new StoreError('embedded_unavailable', `Could not run ${program}: ${cause.message}`, {
          cause,
        }),
      ),
    );
    child.once('close', (code) => resolve({ code, output: output.trim() }));
  });
}

/** Ours without the PG* variables, which would change what Postgres does. */
export function postgresEnvironment(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([name]) => !name.startsWith('PG') && !name.startsWith('LC_'),
  );
  return { ...Object.fromEntries(kept), LC_ALL: 'C', TZ: 'UTC' };
}

function checkVersion(cluster: string, version: string): void {
  let found: string;
  try {
    found = readFileSync(join(cluster, 'PG_VERSION'), 'utf8').trim();
  } catch (cause) {
    throw new StoreError(
      'embedded_failed',
      `User ${process.getuid?.()} cannot read the database folder ${cluster}; run the hub as the user that made it.`,
      { cause },
    );
  }
  const expected = version.split('.')[0];
  if (found === expected) return;
  throw new StoreError(
    'embedded_failed',
    `The database folder ${cluster} was made by Postgres ${found}, this hub carries Postgres ${expected}; dump it with the old version, or start with a new folder.`,
  );
}

function syncFolder(folder: string): void {
  const file = openSync(folder, 'r');
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
