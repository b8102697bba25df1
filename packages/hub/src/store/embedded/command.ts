import { spawnSync } from 'node:child_process';
import { canReach, type Identity } from './identity.ts';

/** How a program of Postgres is started on a folder: as whom, from where, and what it is told about the folder. */
export interface FolderRun {
  uid?: number;
  gid?: number;
  cwd: string;
  /** For `-D`. */
  argument: string;
}

/**
 * Postgres opens its folder by an absolute path, which fails below a folder (a root home, say)
 * that its user may not search. The working folder of a process stays open to it however it
 * was reached, and on Linux has an absolute path of its own.
 */
export function runOn(folder: string, identity: Identity | undefined): FolderRun {
  const reachable = identity === undefined || canReach(folder, identity);
  return { ...identity, cwd: folder, argument: reachable ? folder : '/proc/self/cwd' };
}

let pdeathsig: boolean | undefined;

/**
 * Wraps a command so that the kernel sends it a signal when we die without having stopped it.
 * Unchanged where `setpriv` is missing or too old; then the next start stops it.
 */
export function dyingWithUs(
  signal: 'INT' | 'KILL',
  program: string,
  args: readonly string[],
): [program: string, args: string[]] {
  pdeathsig ??=
    process.platform === 'linux' &&
    spawnSync('setpriv', ['--pdeathsig', 'INT', 'true']).status === 0;
  return pdeathsig
    ? ['setpriv', ['--pdeathsig', signal, '--', program, ...args]]
    : [program, [...args]];
}
