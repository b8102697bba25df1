import { mkdirSync, realpathSync } from 'node:fs';
import type pg from 'pg';
import { wait } from '../../base/index.ts';
import { StoreError } from '../error.ts';
import { type StoreLog, silentLog } from '../log.ts';
import { copyPlaces, provideBinaries } from './binaries.ts';
import { provideCluster, superuser } from './cluster.ts';
import { chooseIdentity } from './identity.ts';
import { clearLeftover, stopProcess } from './leftover.ts';
import { type FolderLock, lockFolder } from './lock.ts';
import { dataPaths } from './paths.ts';
import { signal } from './processes.ts';
import { type Server, type ServerPlan, startServer } from './server.ts';
import { provideSocketFolder } from './socket.ts';

const port_default = 5432;
const restart_pause_ms_min = 100;
const restart_pause_ms_max = 5_000;

export interface EmbeddedOptions {
  /** Kept between starts; made when missing. */
  data_dir: string;
  log?: StoreLog;
  /** Names the socket, and the TCP port when `settings` ask for one. Default 5432. */
  port?: number;
  /** Server settings beyond ours, for tests. */
  settings?: Readonly<Record<string, string>>;
  /** Called when Postgres has died, and when it answers again. */
  onState?: (state: 'down' | 'up') => void;
}

export interface EmbeddedPostgres {
  /** Reaches the database `postgres` through the socket. */
  config: pg.PoolConfig;
  /** Of the postmaster; changes when it had to be started again. */
  readonly pid: number;
  /** Fast shutdown; waits for its end and gives the folder back. Idempotent. */
  stop(): Promise<void>;
}

/**
 * Runs a Postgres of our own on `data_dir`: durable, reached through a Unix socket only, as an
 * unprivileged user when we are root. It is started again when it dies, and dies when we do.
 * @throws StoreError `folder_in_use` | `embedded_unavailable` | `embedded_failed`
 */
export async function startEmbeddedPostgres(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  const log = options.log ?? silentLog;
  mkdirSync(options.data_dir, { recursive: true });
  const data_dir = realpathSync(options.data_dir);
  const lock = await lockFolder(data_dir, dataPaths(data_dir).lock);
  try {
    const plan = await prepare(data_dir, options, log);
    const server = await startServer(plan);
    return supervise(plan, server, lock, options.onState ?? (() => {}));
  } catch (error) {
    lock.release();
    throw error;
  }
}

async function prepare(
  data_dir: string,
  options: EmbeddedOptions,
  log: StoreLog,
): Promise<ServerPlan> {
  const paths = dataPaths(data_dir);
  const port = options.port ?? port_default;
  const identity = chooseIdentity(data_dir, paths.cluster);
  const binaries = provideBinaries(identity, copyPlaces(paths.root));
  await provideCluster(paths, binaries, identity);
  const leftover = await clearLeftover(paths.cluster);
  if (leftover === 'stopped')
    log.warn({ data_dir }, 'stopped the Postgres that an earlier hub left running');
  const socket = provideSocketFolder(data_dir, paths, port, identity);
  return {
    binaries,
    cluster: paths.cluster,
    socket,
    port,
    identity,
    settings: options.settings ?? {},
    log,
  };
}

/** Starts Postgres again each time it ends without `stop`, until `stop`. */
function supervise(
  plan: ServerPlan,
  first: Server,
  lock: FolderLock,
  onState: (state: 'down' | 'up') => void,
): EmbeddedPostgres {
  const stopping = new AbortController();
  let server: Server | undefined = first;
  let stopped: Promise<void> | undefined;

  const watching = watch();

  async function watch(): Promise<void> {
    while (server && !stopping.signal.aborted) {
      const reason = await server.exited;
      if (stopping.signal.aborted) return;
      plan.log.error({ pid: server.pid }, `the embedded Postgres ${reason}; starting it again`);
      onState('down');
      server = await restart();
      if (server) onState('up');
    }
  }

  async function restart(): Promise<Server | undefined> {
    let pause_ms = restart_pause_ms_min;
    while (!stopping.signal.aborted) {
      try {
        await clearLeftover(plan.cluster);
        return await startServer(plan);
      } catch (error) {
        plan.log.error({ err: error, pause_ms }, 'the embedded Postgres did not start again');
      }
      await wait(pause_ms, stopping.signal);
      pause_ms = Math.min(pause_ms * 2, restart_pause_ms_max);
    }
    return undefined;
  }

  // Without `stop`, an ordinary end of our process still asks Postgres to end.
  const onExit = () => void (server && signal(server.pid, 'SIGINT'));
  process.once('exit', onExit);

  async function stop(): Promise<void> {
    stopping.abort();
    if (server) await stopProcess(server.pid);
    await watching;
    if (server) await stopProcess(server.pid);
    process.removeListener('exit', onExit);
    lock.release();
  }

  return {
    config: { host: plan.socket, port: plan.port, user: superuser, database: 'postgres' },
    get pid() {
      if (!server) throw new StoreError('embedded_failed', 'The embedded Postgres is not running.');
      return server.pid;
    },
    stop: () => (stopped ??= stop()),
  };
}
