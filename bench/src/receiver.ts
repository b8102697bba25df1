import { type ChildProcess, fork } from 'node:child_process';
import { endProcess, onCleanup, prefer } from './cleanup.ts';

export type ReceiverCommand =
  | { readonly kind: 'arm'; readonly count: number; readonly latency: boolean }
  | { readonly kind: 'ask' };

export type ReceiverReport =
  | { readonly kind: 'listening'; readonly ports: number[] }
  | { readonly kind: 'armed' | 'first' | 'reached' }
  | { readonly kind: 'state'; readonly received: number; readonly latencies_ms: number[] };

/** The receiving process, seen from the harness. */
export class Receiver {
  readonly pid: number;
  readonly ports: readonly number[];
  readonly #child: ChildProcess;

  constructor(child: ChildProcess, ports: readonly number[]) {
    this.#child = child;
    this.pid = child.pid as number;
    this.ports = ports;
  }

  /** Counts from zero; the promises resolve at the first request and at request number `count`. */
  async arm(
    count: number,
    options: { latency?: boolean; timeout_ms?: number } = {},
  ): Promise<{ first: Promise<void>; reached: Promise<void> }> {
    const timeout_ms = options.timeout_ms ?? 300_000;
    const first = this.#next('first', timeout_ms);
    const reached = this.#next('reached', timeout_ms);
    const armed = this.#next('armed', 10_000);
    this.#child.send({ kind: 'arm', count, latency: options.latency ?? false });
    await armed;
    const reports = { first: first.then(() => {}), reached: reached.then(() => {}) };
    // Nobody may be waiting for it when one of them fails.
    for (const report of Object.values(reports)) report.catch(() => {});
    return reports;
  }

  async state(): Promise<{ received: number; latencies_ms: number[] }> {
    const answer = this.#next('state', 10_000);
    this.#child.send({ kind: 'ask' });
    const report = await answer;
    if (report.kind !== 'state') throw new Error('not a state');
    return report;
  }

  #next(kind: ReceiverReport['kind'], timeout_ms: number): Promise<ReceiverReport> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#child.off('message', hear);
        reject(new Error(`the receiver did not report "${kind}" within ${timeout_ms / 1000} s`));
      }, timeout_ms).unref();
      const hear = (report: ReceiverReport) => {
        if (report.kind !== kind) return;
        clearTimeout(timer);
        this.#child.off('message', hear);
        resolve(report);
      };
      this.#child.on('message', hear);
    });
  }
}

const receiverPorts = 10;

export async function startReceiver(): Promise<Receiver> {
  const file = new URL('./receiver-process.ts', import.meta.url);
  const child = fork(file, [String(receiverPorts)], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    detached: true,
  });
  prefer(child.pid);
  onCleanup(() => endProcess(child));
  const ports = await new Promise<number[]>((resolve, reject) => {
    child.once('exit', () => reject(new Error('the receiver ended')));
    child.on('message', (report: ReceiverReport) => {
      if (report.kind === 'listening') resolve(report.ports);
    });
  });
  return new Receiver(child, ports);
}
