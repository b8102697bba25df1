import { spawn } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { join } from 'node:path';
import { StoreError } from '../error.ts';
import type { Binaries } from './binaries.ts';
import { dyingWithUs, runOn } from './command.ts';
import { giveTo, type Identity } from './identity.ts';
import type { DataPaths } from './paths.ts';

export const superuser = 'streaming_hub';
/** A cluster is made under a name of its own and gets its place when complete, so a half-made one is never used. */
const unfinished_prefix = 'cluster.new-';
const output_chars_max = 4_000;

/**
 * Makes the cluster when there is none; checks that these binaries can open it when there is one.
 * @throws StoreError `embedded_unavailable` | `embedded_failed`
 */
export async function provideCluster(
  paths: DataPaths,
  binaries: Binaries,
  identity: Identity | undefined,
): Promise<void> {
  mkdirSync(paths.root, { recursive: true, mode: 0o700 });
  refuseForeignFolder(paths.root);
  for (const name of readdirSync(paths.root)) {
    if (name.startsWith(unfinished_prefix))
      rmSync(join(paths.root, name), { recursive: true, force: true });
  }
  if (!existsSync(join(paths.cluster, 'PG_VERSION'))) await makeCluster(paths, binaries, identity);
  if (identity) withOwner(() => giveTo(paths.root, identity));
  checkVersion(paths.cluster, binaries.version);
}

async function makeCluster(
  paths: DataPaths,
  binaries: Binaries,
  identity: Identity | undefined,
): Promise<void> {
  chmodSync(paths.root, 0o700);
  const unfinished = mkdtempSync(join(paths.root, unfinished_prefix));
  if (identity) {
    withOwner(() => {
      chownSync(paths.root, identity.uid, identity.gid);
      chownSync(unfinished, identity.uid, identity.gid);
    });
  }
  const { argument, ...where } = runOn(unfinished, identity);
  const options = [
    `--pgdata=${argument}`,
    `--username=${superuser}`,
    // Only the owner of the socket's folder gets in, see socket.ts.
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
  renameSync(unfinished, paths.cluster);
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
    // Killed, not interrupted: an interrupted initdb tidies up by path, where a later start may be at work.
    const [command, commandArgs] = dyingWithUs('KILL', program, args);
    const child = spawn(command, commandArgs, {
      ...options,
      env: postgresEnvironment(),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const collect = (chunk: Buffer) => {
      output = (output + chunk.toString()).slice(-output_chars_max);
    };
    child.stdout.on('data', collect);
    child.stderr.on('data', collect);
    child.once('error', (cause: NodeJS.ErrnoException) =>
      reject(cause.code === 'EPERM' ? notPermitted(cause) : cannotRun(program, cause)),
    );
    child.once('close', (code) => resolve({ code, output: output.trim() }));
  });
}

function cannotRun(program: string, cause: Error): StoreError {
  return new StoreError('embedded_unavailable', `Could not run ${program}: ${cause.message}`, {
    cause,
  });
}

/** Root in a container that took the rights from it. */
function notPermitted(cause: unknown): StoreError {
  return new StoreError(
    'embedded_unavailable',
    'Postgres does not run as root, and this root may not act as another user; run the hub (or its container) as an ordinary user.',
    { cause },
  );
}

function withOwner(change: () => void): void {
  try {
    change();
  } catch (error) {
    throw (error as NodeJS.ErrnoException).code === 'EPERM' ? notPermitted(error) : error;
  }
}

/** Made by another user: say so before anything fails in a less readable way. */
function refuseForeignFolder(root: string): void {
  try {
    readdirSync(root);
  } catch (cause) {
    throw new StoreError(
      'embedded_failed',
      `User ${process.getuid?.()} may not read the database folder ${root}; run the hub as the user that made it.`,
      { cause },
    );
  }
}

/** Ours without the variables that would change what Postgres does. */
export function postgresEnvironment(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([name]) => !name.startsWith('PG') && !name.startsWith('LC_'),
  );
  return { ...Object.fromEntries(kept), LC_ALL: 'C', TZ: 'UTC' };
}

function checkVersion(cluster: string, version: string): void {
  const found = readFileSync(join(cluster, 'PG_VERSION'), 'utf8').trim();
  const expected = version.split('.')[0];
  if (found === expected) return;
  throw new StoreError(
    'embedded_failed',
    `The database folder ${cluster} was made by Postgres ${found}, this hub carries Postgres ${expected}; move the data with pg_dump, or start with a new folder.`,
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
