import { type ChildProcess, spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';

/** Everything that was started, undone in reverse order: at the end, on failure and on Ctrl-C. */
const undo: (() => unknown)[] = [];

export function onCleanup(action: () => unknown): void {
  undo.push(action);
}

/** Idempotent. What fails is said and the rest goes on. */
export async function cleanUp(): Promise<void> {
  for (let action = undo.pop(); action; action = undo.pop()) {
    try {
      await action();
    } catch (error) {
      console.error(`clean-up: ${String(error)}`);
    }
  }
}

/** Sends a signal and waits for the end; after `patience_ms` kills. */
export async function endProcess(
  child: ChildProcess,
  signal: NodeJS.Signals = 'SIGTERM',
  patience_ms = 10_000,
): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  child.kill(signal);
  const timer = setTimeout(() => child.kill('SIGKILL'), patience_ms);
  await ended;
  clearTimeout(timer);
}

let canFollowParent: boolean | undefined;

/** Puts a command under `setpriv` where that works: it then ends with this process, even after kill -9. */
export function endingWithUs(program: string, args: readonly string[]): [string, string[]] {
  canFollowParent ??= spawnSync('setpriv', ['--pdeathsig', 'KILL', 'true']).status === 0;
  if (!canFollowParent) return [program, [...args]];
  return ['setpriv', ['--pdeathsig', 'KILL', program, ...args]];
}

let niceness = 0;

/** See `prefer`. */
export function setNiceness(value: number): void {
  niceness = value;
}

/**
 * Processes of the benchmark lead sessions of their own (`detached`), which Linux gives equal shares
 * of the machine; on a machine that others load as well, `--nice` makes the shares larger (root only).
 * Latency can only be measured where the processes get to run.
 */
export function prefer(pid: number | undefined): void {
  if (niceness === 0 || pid === undefined) return;
  try {
    writeFileSync(`/proc/${pid}/autogroup`, String(niceness));
  } catch (error) {
    console.error(`--nice has no effect on process ${pid}: ${String(error)}`);
  }
}
