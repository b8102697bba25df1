import type pg from 'pg';
import { wait } from '../../base/index.ts';
import { StoreError } from '../error.ts';
import { superuser } from './cluster.ts';
import { clearLeftover, stopProcess } from './leftover.ts';
import { signal } from './processes.ts';
import { type Server, type ServerPlan, startServer } from './server.ts';

const restart_pause_ms_min = 50;
const restart_pause_ms_max = 5_000;

export interface EmbeddedPostgres {
  /** Reaches the database `postgres` through the socket. */
  config: pg.PoolConfig;
  /** Of the postmaster; changes when it had to be started again. */
  readonly pid: number;
  /** Fast shutdown; waits for its end and gives the folder back. Idempotent. */
  stop(): Promise<void>;
}

/**
 * States: up → (died) down → up …, and from any of them → stopped, by `stop` alone. While down it
 * is started again and again, with growing pauses: right after a kill its old workers still hold
 * the shared memory for a moment.
 */
export function supervise(
  plan: ServerPlan,
  first: Server,
  onState: (state: 'down' | 'up') => void,
  release: () => void,
): EmbeddedPostgres {
  const stopping = new AbortController();
  let server: Server | undefined = first;
  let stopped: Promise<void> | undefined;
  const watching = watch();

  async function watch(): Promise<void> {
    while (server) {
      const reason = await server.exited;
      if (stopping.signal.aborted) return;
      plan.log.error({ pid: server.pid }, `the embedded Postgres ${reason}; starting it again`);
      server = undefined;
      onState('down');
      server = await restart();
      if (server) onState('up');
    }
  }

  async function restart(): Promise<Server | undefined> {
    let pause_ms = restart_pause_ms_min;
    while (!stopping.signal.aborted) {
      try {
        await clearLeftover(plan.cluster, plan.socket, plan.port);
        return await startServer(plan, stopping.signal);
      } catch (error) {
        if (!stopping.signal.aborted)
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
    // It may have come up again while we asked it to stop.
    if (server) await stopProcess(server.pid);
    process.removeListener('exit', onExit);
    release();
  }

  return {
    config: { host: plan.socket, port: plan.port, user: superuser, database: 'postgres' },
    get pid() {
      if (!server)
        throw new StoreError(
          'embedded_failed',
          'The embedded Postgres is not running at this moment.',
        );
      return server.pid;
    },
    stop: () => (stopped ??= stop()),
  };
}
