import { createHash } from 'node:crypto';
import { join } from 'node:path';

/** The kernel keeps a socket's path in 108 bytes, the last one being zero. */
const socket_path_bytes_max = 107;

/** Everything below `DATA_DIR/postgres`, plus the lock beside it. */
export interface DataPaths {
  /** Held while a hub runs on the folder. */
  lock: string;
  /** Belongs to the user Postgres runs as. */
  root: string;
  cluster: string;
  socket: string;
}

export function dataPaths(data_dir: string): DataPaths {
  const root = join(data_dir, 'postgres');
  return {
    lock: join(data_dir, 'hub.lock'),
    root,
    cluster: join(root, 'cluster'),
    socket: join(root, 'socket'),
  };
}

/** Does `FOLDER/.s.PGSQL.PORT` fit into a socket address? */
export function socketPathFits(folder: string, port: number): boolean {
  return Buffer.byteLength(join(folder, `.s.PGSQL.${port}`)) <= socket_path_bytes_max;
}

/** A short name that stays the same for the same data folder and user. */
export function shortSocketName(data_dir: string, uid: number): string {
  const digest = createHash('sha256').update(`${uid}:${data_dir}`).digest('hex');
  return `streaming-hub-${digest.slice(0, 16)}`;
}
