import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import pg from 'pg';
import { StoreError } from '../error.ts';
import type { StoreLog } from '../log.ts';
import type { Binaries } from './binaries.ts';
import { postgresEnvironment, superuser } from './cluster.ts';
import { dyingWithUs, runOn } from './command.ts';
import type { Identity } from './identity.ts';
import { serverArguments } from './settings.ts';

const ready_poll_ms = 5;
/** Recovery after a crash reads up to `max_wal_size`. */
const ready_ms_max = 600_000;
const last_lines_max = 20;

export interface ServerPlan {
  binaries: Binaries;
  cluster: string;
  socket: string;
  port: number;
  identity: Identity | undefined;
  settings: Readonly<Record<string, string>>;
  log: StoreLog;
}

/** One run of the postgres program. */
export interface Server {
  pid: number;
  /** Resolves with a sentence when the process has ended. */
  exited: Promise<string>;
}

/**
 * Starts Postgres and resolves when it answers.
 * @throws StoreError `embedded_failed` with its last words when it ends before that
 */
export async function startServer(plan: ServerPlan): Promise<Server> {
  const child = spawnPostgres(plan);
  const lines = followOutput(child, plan.log);
  let ended: string | undefined;
  const exited = new Promise<string>((resolve) => {
    const end = (reason: string) => {
      ended ??= reason;
      resolve(ended);
    };
    child.once('error', (error) => end(`could not be started: ${error.message}`));
    child.once('exit', (code, name) =>
      end(name ? `was ended by ${name}` : `ended with code ${code}`),
    );
  });
  const end_ms = performance.now() + ready_ms_max;
  while (ended === undefined) {
    if (await answers(plan)) {
      if (child.pid === undefined) break;
      return { pid: child.pid, exited };
    }
    if (performance.now() > end_ms) {
      child.kill('SIGQUIT');
      ended = 'did not answer in time';
    }
    await pause(ready_poll_ms);
  }
  throw new StoreError(
    'embedded_failed',
    `The embedded Postgres ${ended ?? 'did not start'}: ${lines.join(' | ') || 'it said nothing'}`,
  );
}

function spawnPostgres(plan: ServerPlan): ChildProcess {
  const { argument, ...where } = runOn(plan.cluster, plan.identity);
  const [program, args] = dyingWithUs(join(plan.binaries.native, 'bin', 'postgres'), [
    '-D',
    argument,
    ...serverArguments({
      unix_socket_directories: plan.socket,
      port: String(plan.port),
      ...plan.settings,
    }),
  ]);
  return spawn(program, args, {
    ...where,
    env: postgresEnvironment(),
    // A session of its own: Ctrl-C in a terminal reaches us, and we stop it when our work is done.
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
}

/** Passes what Postgres says on to the log; the last lines explain a failed start. */
function followOutput(child: ChildProcess, log: StoreLog): string[] {
  const last: string[] = [];
  if (!child.stderr) return last;
  createInterface({ input: child.stderr }).on('line', (line) => {
    if (last.push(line) > last_lines_max) last.shift();
    if (/^(ERROR|FATAL|PANIC|WARNING)/.test(line)) log.warn({ component: 'postgres' }, line);
  });
  return last;
}

async function answers(plan: ServerPlan): Promise<boolean> {
  const client = new pg.Client({
    host: plan.socket,
    port: plan.port,
    user: superuser,
    database: 'postgres',
  });
  client.on('error', () => {});
  try {
    await client.connect();
    return true;
  } catch {
    return false;
  } finally {
    await client.end().catch(() => {});
  }
}
