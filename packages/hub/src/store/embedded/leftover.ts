import { readFileSync, readlinkSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { StoreError } from '../error.ts';
import { commandOf, isRunning, signal } from './processes.ts';

/** A fast shutdown writes a checkpoint, which may take a while on a slow disk. */
const fast_stop_ms_max = 60_000;
const immediate_stop_ms_max = 10_000;
const poll_ms = 10;

/**
 * Makes the cluster free for a new start. We hold the folder's lock, so no living hub owns what is
 * found: a Postgres whose hub was killed is stopped, and lock files are removed when their number
 * now belongs to a zombie or a stranger, which Postgres itself would take for a living owner.
 * The pid file of a process that is simply gone stays: Postgres judges it with more knowledge.
 * @throws StoreError `embedded_failed` when the old one will not end
 */
export async function clearLeftover(
  cluster: string,
  socket: string,
  port: number,
): Promise<'none' | 'stopped'> {
  const file = join(cluster, 'postmaster.pid');
  const pid = readPid(file);
  let found: 'none' | 'stopped' = 'none';
  if (pid !== undefined && exists(pid)) {
    if (isRunning(pid) && isPostgresOf(pid, cluster)) {
      await stopProcess(pid);
      found = 'stopped';
    }
    rmSync(file, { force: true });
  }
  rmSync(join(socket, `.s.PGSQL.${port}.lock`), { force: true });
  return found;
}

/** Fast shutdown; when that takes too long an immediate one, from which the next start recovers. */
export async function stopProcess(pid: number): Promise<void> {
  signal(pid, 'SIGINT');
  if (await gone(pid, fast_stop_ms_max)) return;
  signal(pid, 'SIGQUIT');
  if (await gone(pid, immediate_stop_ms_max)) return;
  throw new StoreError(
    'embedded_failed',
    `Postgres (process ${pid}) does not stop; end it by hand.`,
  );
}

async function gone(pid: number, timeout_ms: number): Promise<boolean> {
  const end_ms = performance.now() + timeout_ms;
  while (isRunning(pid)) {
    if (performance.now() > end_ms) return false;
    await pause(poll_ms);
  }
  return true;
}

/** Running or zombie. */
function exists(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function readPid(file: string): number | undefined {
  try {
    const pid = Number.parseInt(readFileSync(file, 'latin1'), 10);
    return pid > 0 ? pid : undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** It always works inside its cluster; where that cannot be seen, its command line names the folder. */
function isPostgresOf(pid: number, cluster: string): boolean {
  const command = commandOf(pid);
  if (!command.includes('postgres')) return false;
  try {
    return readlinkSync(`/proc/${pid}/cwd`) === cluster;
  } catch {
    return command.includes(cluster);
  }
}
