import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { until } from './until.ts';

const program = fileURLToPath(new URL('../../hub/src/cli.ts', import.meta.url));
const startTimeout_ms = 60_000;
const logCharacters_max = 200_000;

export interface HubProcess {
  readonly url: string;
  readonly pid: number;
  readonly data_dir: string;
  /** Its exit code; null when a signal ended it. */
  readonly ended: Promise<number | null>;
  /** What it has logged, the newest part. */
  log(): string;
  /** kill -9; resolves once it is gone. */
  kill(): Promise<void>;
  /** SIGTERM; resolves with its exit code. */
  stop(): Promise<number | null>;
  /** The same hub again, on the same folder, after `kill` or `stop`. */
  restart(): Promise<HubProcess>;
  request(
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<HubAnswer>;
  /** Removes its folder. Call after the end of the last process on it. */
  discard(): void;
}

export interface HubAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Record<string, unknown>;
}

/** A hub in a process of its own, on a free port, with these STREAMING_HUB_ settings (names without the prefix). */
export async function startHubProcess(
  settings: Record<string, string>,
  folder?: string,
): Promise<HubProcess> {
  const data_dir = folder ?? mkdtempSync(join(tmpdir(), 'hub-process-'));
  const addressFile = join(data_dir, 'hub.json');
  rmSync(addressFile, { force: true });
  const { child, log, ended } = spawnHub(settings, data_dir);
  const url = await until(() => {
    if (child.exitCode !== null) return `the hub ended: ${log()}`;
    return (JSON.parse(readFileSync(addressFile, 'utf8')) as { http: { url: string } }).http.url;
  }, startTimeout_ms).catch((error: unknown) => {
    child.kill('SIGKILL');
    throw error;
  });
  if (!url.startsWith('http')) throw new Error(url);
  return {
    url,
    pid: child.pid ?? 0,
    data_dir,
    ended,
    log,
    async kill() {
      child.kill('SIGKILL');
      await ended;
    },
    async stop() {
      child.kill('SIGTERM');
      return ended;
    },
    restart: () => startHubProcess(settings, data_dir),
    async request(method, path, body, headers = {}) {
      const answer = await fetch(url + path, {
        method,
        headers: body === undefined ? headers : { 'content-type': 'application/json', ...headers },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const text = await answer.text();
      return {
        status: answer.status,
        headers: answer.headers,
        body: text === '' ? {} : (JSON.parse(text) as Record<string, unknown>),
      };
    },
    discard: () => rmSync(data_dir, { recursive: true, force: true }),
  };
}

/** A start that is meant to be refused: the exit code and everything the process said. */
export async function runRefusedHub(
  settings: Record<string, string>,
  folder: string,
): Promise<{ code: number | null; output: string }> {
  const { child, log, ended } = spawnHub(settings, folder);
  const tooLong = setTimeout(() => child.kill('SIGKILL'), startTimeout_ms);
  const code = await ended;
  clearTimeout(tooLong);
  return { code, output: log() };
}

function spawnHub(settings: Record<string, string>, data_dir: string) {
  const environment: Record<string, string> = { ...cleanEnvironment() };
  const all = {
    DATA_DIR: data_dir,
    HTTP_LISTEN_ADDR: '127.0.0.1:0',
    LOG_LEVEL: 'warn',
    ...settings,
  };
  for (const [name, value] of Object.entries(all)) environment[`STREAMING_HUB_${name}`] = value;
  const child = spawn(process.execPath, [program, 'start'], {
    env: environment,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const killWithUs = () => child.kill('SIGKILL');
  process.once('exit', killWithUs);
  // 'close', not 'exit': by then everything it said has been read.
  const ended = new Promise<number | null>((resolve) =>
    child.once('close', (code) => {
      process.removeListener('exit', killWithUs);
      resolve(code);
    }),
  );
  return { child, log: collectLog(child), ended };
}

function cleanEnvironment(): Record<string, string> {
  return Object.fromEntries(
    Object.entries(process.env).filter(
      ([name, value]) => value !== undefined && !name.startsWith('STREAMING_HUB_'),
    ),
  ) as Record<string, string>;
}

function collectLog(child: ChildProcess): () => string {
  let text = '';
  for (const output of [child.stdout, child.stderr]) {
    output?.on('data', (chunk: Buffer) => {
      text = (text + chunk).slice(-logCharacters_max);
    });
  }
  return () => text;
}
