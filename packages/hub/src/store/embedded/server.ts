import { type ChildProcess, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import pg from 'pg';
import { wait } from '../../base/index.ts';
import { StoreError } from '../error.ts';
import type { StoreLog } from '../log.ts';
import type { Binaries } from './binaries.ts';
import { postgresEnvironment, superuser } from './cluster.ts';
import { dyingWithUs, runOn } from './command.ts';
import type { Identity } from './identity.ts';
import { serverArguments } from './settings.ts';

const ready_poll_ms = 5;
/** A start that takes longer than this is a recovery; then look less often. */
const ready_soon_ms = 1_000;
const recovery_poll_ms = 100;
/** Recovery reads up to `max_wal_size`. */
const ready_ms_max = 600_000;
const last_lines_max = 20;
/** What our own looks cause while it recovers. */
const expected_lines =
  /the database system is (starting up|not yet accepting connections|shutting down)/;

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
  /** Resolves with a few words when the process has ended. */
  exited: Promise<string>;
}

/**
 * Starts Postgres and resolves when it answers. When the signal aborts before that, it is stopped.
 * @throws StoreError `embedded_failed` with its last words when it ends before it answers
 */
export async function startServer(plan: ServerPlan, signal?: AbortSignal): Promise<Server> {
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
  const begin_ms = performance.now();
  while (ended === undefined) {
    if (child.pid !== undefined && (await answers(plan))) return { pid: child.pid, exited };
    const elapsed_ms = performance.now() - begin_ms;
    if (signal?.aborted || elapsed_ms > ready_ms_max) child.kill('SIGQUIT');
    await wait(elapsed_ms < ready_soon_ms ? ready_poll_ms : recovery_poll_ms);
  }
  throw new StoreError(
    'embedded_failed',
    `The embedded Postgres ${ended}: ${lines.join(' | ') || 'it said nothing'}`,
  );
}

function spawnPostgres(plan: ServerPlan): ChildProcess {
  const { argument, ...where } = runOn(plan.cluster, plan.identity);
  const settings = {
    unix_socket_directories: plan.socket,
    port: String(plan.port),
    ...plan.settings,
  };
  const args = ['-D', argument, ...serverArguments(settings)];
  const [program, programArgs] = dyingWithUs(
    'INT',
    join(plan.binaries.native, 'bin', 'postgres'),
    args,
  );
  return spawn(program, programArgs, {
    ...where,
    env: postgresEnvironment(),
    // A session of its own: Ctrl-C in a terminal reaches us, and we stop it when our work is done.
    detached: true,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
}

/** Passes what Postgres complains about on to the log; its last lines explain a failed start. */
function followOutput(child: ChildProcess, log: StoreLog): string[] {
  const last: string[] = [];
  if (!child.stderr) return last;
  createInterface({ input: child.stderr }).on('line', (line) => {
    if (expected_lines.test(line)) return;
    if (last.push(line) > last_lines_max) last.shift();
    if (/^(FATAL|PANIC|WARNING)/.test(line)) log.warn({ component: 'postgres' }, line);
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
