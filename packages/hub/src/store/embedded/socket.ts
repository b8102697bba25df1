import { chmodSync, chownSync, lstatSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { canReach, type Identity } from './identity.ts';
import { type DataPaths, shortSocketName, socketPathFits } from './paths.ts';

/**
 * The folder of the socket, open to Postgres' user (and root) alone: that is the whole access
 * control. In the data folder; or, when its path is too long for a socket or hidden from that
 * user, in the folder for temporary files.
 */
export function provideSocketFolder(
  data_dir: string,
  paths: DataPaths,
  port: number,
  identity: Identity | undefined,
): string {
  const hidden = identity !== undefined && !canReach(paths.root, identity);
  if (!hidden && socketPathFits(paths.socket, port)) return makePrivate(paths.socket, identity);
  const uid = identity?.uid ?? process.getuid?.() ?? 0;
  for (const place of [tmpdir(), '/tmp']) {
    const folder = join(place, shortSocketName(data_dir, uid));
    if (!socketPathFits(folder, port)) continue;
    // The folder for temporary files may be root's own as well.
    if (identity !== undefined && !canReach(place, identity)) continue;
    if (isForeign(folder, uid)) return makePrivate(mkdtempSync(join(place, 'hub-')), identity);
    return makePrivate(folder, identity);
  }
  return makePrivate(mkdtempSync('/tmp/hub-'), identity);
}

/** Somebody else put something at our name. */
function isForeign(folder: string, uid: number): boolean {
  const found = lstatSync(folder, { throwIfNoEntry: false });
  return found !== undefined && (!found.isDirectory() || found.uid !== uid);
}

function makePrivate(folder: string, identity: Identity | undefined): string {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  if (identity) chownSync(folder, identity.uid, identity.gid);
  chmodSync(folder, 0o700);
  return folder;
}

/** After a stop nothing of it is needed. */
export function removeSocketFolder(folder: string): void {
  rmSync(folder, { recursive: true, force: true });
}
