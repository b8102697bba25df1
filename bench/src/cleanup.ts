import { type ChildProcess, spawnSync } from 'node:child_process';

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

let isPreferred = false;

/** From here on `prefer` has an effect. */
export function preferAll(): void {
  isPreferred = true;
}

/**
 * With `--prefer`, processes of the benchmark run before everything else on the machine (real-time
 * round robin, root only): latency can only be measured where the processes get to run. Children and
 * threads made later inherit it. Meant for P3, which needs less than one core; others would starve.
 */
export function prefer(pid: number | null | undefined): void {
  if (!isPreferred || !pid) return;
  const result = spawnSync('chrt', ['-a', '-r', '-p', '1', String(pid)]);
  if (result.status !== 0) console.error(`--prefer has no effect on process ${pid}`);
}
