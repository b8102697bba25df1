import { mkdirSync, realpathSync } from 'node:fs';
import { type StoreLog, silentLog } from '../log.ts';
import { copyPlaces, provideBinaries } from './binaries.ts';
import { provideCluster } from './cluster.ts';
import { chooseIdentity } from './identity.ts';
import { clearLeftover } from './leftover.ts';
import { lockFolder } from './lock.ts';
import { dataPaths } from './paths.ts';
import { type ServerPlan, startServer } from './server.ts';
import { provideSocketFolder, removeSocketFolder } from './socket.ts';
import { type EmbeddedPostgres, supervise } from './supervise.ts';

export type { EmbeddedPostgres } from './supervise.ts';

const port_default = 5432;

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

/**
 * Runs a Postgres of our own on `data_dir`: durable, reached through a Unix socket only, as an
 * unprivileged user when we are root. It is started again when it dies, and dies when we do.
 * @throws StoreError `folder_in_use` | `embedded_unavailable` | `embedded_failed`
 */
export async function startEmbeddedPostgres(options: EmbeddedOptions): Promise<EmbeddedPostgres> {
  mkdirSync(options.data_dir, { recursive: true });
  const data_dir = realpathSync(options.data_dir);
  const lock = await lockFolder(data_dir, dataPaths(data_dir).lock);
  try {
    const plan = await prepare(data_dir, options);
    const server = await startServer(plan);
    return supervise(plan, server, options.onState ?? (() => {}), () => {
      removeSocketFolder(plan.socket);
      lock.release();
    });
  } catch (error) {
    lock.release();
    throw error;
  }
}

async function prepare(data_dir: string, options: EmbeddedOptions): Promise<ServerPlan> {
  const { port = port_default, log = silentLog, settings = {} } = options;
  const paths = dataPaths(data_dir);
  const identity = chooseIdentity(data_dir, paths.cluster);
  const binaries = provideBinaries(identity, copyPlaces(paths.root));
  await provideCluster(paths, binaries, identity);
  const socket = provideSocketFolder(data_dir, paths, port, identity);
  const leftover = await clearLeftover(paths.cluster, socket, port);
  if (leftover === 'stopped')
    log.warn({ data_dir }, 'stopped the Postgres that an earlier hub had left running');
  return { binaries, cluster: paths.cluster, socket, port, identity, settings, log };
}
