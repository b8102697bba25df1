import { fork } from 'node:child_process';
import { endProcess, onCleanup, prefer } from '../cleanup.ts';
import { cpuSeconds } from '../processes.ts';
import type { BareReport } from './child.ts';

const bare_ms_max = 300_000;

/** Runs one bare loop; `others` are process trees whose CPU time is counted meanwhile. */
export async function runBare(
  name: string,
  given: object,
  others: Readonly<Record<string, number>> = {},
): Promise<BareReport & { others_cpu_seconds: Record<string, number> }> {
  const file = new URL(`./${name}.ts`, import.meta.url);
  const before = cpuOf(others);
  const child = fork(file, [JSON.stringify(given)], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    detached: true,
  });
  prefer(child.pid);
  onCleanup(() => endProcess(child, 'SIGKILL'));
  const timer = setTimeout(() => child.kill('SIGKILL'), bare_ms_max);
  const report = await new Promise<BareReport>((resolve, reject) => {
    child.once('message', (message) => resolve(message as BareReport));
    child.once('exit', (code) => reject(new Error(`the bare loop ${name} ended with ${code}`)));
  });
  clearTimeout(timer);
  const after = cpuOf(others);
  const others_cpu_seconds = Object.fromEntries(
    Object.keys(others).map((key) => [key, (after[key] ?? 0) - (before[key] ?? 0)]),
  );
  return { ...report, others_cpu_seconds };
}

export function cpuOf(roots: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(roots).map(([name, pid]) => [name, cpuSeconds(pid)]));
}
