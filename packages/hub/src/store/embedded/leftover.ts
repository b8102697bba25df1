import { readFileSync, rmSync } from 'node:fs';
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
 * found: a Postgres whose hub was killed is stopped; a pid file is removed when its number now
 * belongs to a zombie or a stranger, which Postgres itself would take for a living owner.
 * @throws StoreError `embedded_failed` when it will not end
 */
export async function clearLeftover(cluster: string): Promise<'none' | 'stopped' | 'removed'> {
  const file = join(cluster, 'postmaster.pid');
  const pid = readPid(file);
  if (pid === undefined) return 'none';
  if (isRunning(pid) && isPostgresOf(pid, cluster)) {
    await stopProcess(pid);
    return 'stopped';
  }
  rmSync(file, { force: true });
  return 'removed';
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

function readPid(file: string): number | undefined {
  try {
    const pid = Number.parseInt(readFileSync(file, 'latin1'), 10);
    return pid > 0 && pid !== process.pid ? pid : undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** We start it with the folder as its argument, or as its working folder (see command.ts); it always works inside it. */
function isPostgresOf(pid: number, cluster: string): boolean {
  const command = commandOf(pid);
  return (
    /postgres/.test(command) && (command.includes(cluster) || command.includes('/proc/self/cwd'))
  );
}
