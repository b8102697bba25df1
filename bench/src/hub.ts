import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { endingWithUs, endProcess, onCleanup, prefer } from './cleanup.ts';
import type { Bench } from './environment.ts';

const cli = fileURLToPath(new URL('../../packages/hub/src/cli.ts', import.meta.url));
const ready_ms_max = 60_000;

export interface HubOptions {
  readonly role: 'all' | 'ingest' | 'delivery';
  readonly dsn: string;
  /** Null: the embedded stream. */
  readonly brokers: readonly string[] | null;
  /** Names its profile, when profiles are asked for. */
  readonly name: string;
  readonly settings?: Readonly<Record<string, string>>;
}

/** A hub in a process of its own, started the way an operator starts it. */
export class HubProcess {
  readonly child: ChildProcess;
  readonly data_dir: string;

  constructor(child: ChildProcess, data_dir: string) {
    this.child = child;
    this.data_dir = data_dir;
  }

  get pid(): number {
    return this.child.pid as number;
  }

  /** Resolves with the address once everything runs. */
  async url(): Promise<string> {
    const until_ms = performance.now() + ready_ms_max;
    while (performance.now() < until_ms) {
      if (this.child.exitCode !== null) throw new Error('the hub ended; see its messages above');
      try {
        const text = readFileSync(join(this.data_dir, 'hub.json'), 'utf8');
        const { http, pid } = JSON.parse(text) as { http: { url: string }; pid: number };
        if (pid === this.child.pid) return http.url;
      } catch {
        // not written yet
      }
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    throw new Error(`the hub was not ready within ${ready_ms_max / 1000} s`);
  }

  stop(): Promise<void> {
    return endProcess(this.child, 'SIGTERM', 30_000);
  }
}

let count = 0;

/** Does not wait until it is ready: what it does first may be what is measured. */
export function startHub(bench: Bench, options: HubOptions): HubProcess {
  count += 1;
  const data_dir = join(bench.folder, `hub-${count}`);
  mkdirSync(data_dir, { recursive: true });
  const profile = bench.options.profile
    ? [
        '--cpu-prof',
        `--cpu-prof-dir=${bench.options.profile}`,
        `--cpu-prof-name=${options.name}.cpuprofile`,
      ]
    : [];
  const [program, args] = endingWithUs(process.execPath, [...profile, cli, 'start']);
  const child = spawn(program, args, {
    stdio: ['ignore', 'inherit', 'inherit'],
    detached: true,
    env: {
      PATH: process.env['PATH'],
      BENCH_KEK: bench.kek,
      STREAMING_HUB_ENV: 'local',
      STREAMING_HUB_KEK_REF: 'BENCH_KEK',
      STREAMING_HUB_LOG_LEVEL: 'error',
      STREAMING_HUB_HTTP_LISTEN_ADDR: '127.0.0.1:0',
      STREAMING_HUB_DATA_DIR: data_dir,
      STREAMING_HUB_ROLE: options.role,
      STREAMING_HUB_POSTGRES_DSN: options.dsn,
      STREAMING_HUB_KAFKA_BROKERS: options.brokers?.join(',') ?? '',
      STREAMING_HUB_PRE_STOP_DRAIN_TIMEOUT: '0s',
      ...options.settings,
    },
  });
  prefer(child.pid);
  const hub = new HubProcess(child, data_dir);
  onCleanup(() => endProcess(child, 'SIGTERM', 5_000));
  return hub;
}
