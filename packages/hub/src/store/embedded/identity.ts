import { chownSync, lstatSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

/** Who Postgres runs as: it refuses to be root. Undefined in `startIdentity` means "as we are". */
export interface Identity {
  uid: number;
  gid: number;
}

const nobody: Identity = { uid: 65_534, gid: 65_534 };

/**
 * Root needs another identity: the owner of the cluster that is there; else, for a new one, the
 * owner of the data folder or the user `postgres`, provided that initdb can look the user up
 * (it asks passwd); else `nobody`.
 */
export function chooseIdentity(
  data_dir: string,
  cluster: string,
  own_uid = process.getuid?.(),
): Identity | undefined {
  if (own_uid !== 0) return undefined;
  const ofCluster = ownerOf(cluster);
  if (ofCluster && ofCluster.uid !== 0) return ofCluster;
  const users = readUsers();
  const ofFolder = ownerOf(data_dir);
  if (ofFolder && ofFolder.uid !== 0 && users.some((user) => user.uid === ofFolder.uid))
    return ofFolder;
  const postgres = users.find((user) => user.name === 'postgres' && user.uid !== 0);
  return postgres ? { uid: postgres.uid, gid: postgres.gid } : nobody;
}

function ownerOf(path: string): Identity | undefined {
  const found = statSync(path, { throwIfNoEntry: false });
  return found && { uid: found.uid, gid: found.gid };
}

function readUsers(): { name: string; uid: number; gid: number }[] {
  let text: string;
  try {
    text = readFileSync('/etc/passwd', 'utf8');
  } catch {
    return [];
  }
  return text.split('\n').flatMap((line) => {
    const [name = '', , uid, gid] = line.split(':');
    return uid && gid ? [{ name, uid: Number(uid), gid: Number(gid) }] : [];
  });
}

/** Can this user reach `path`, going by the permission bits of the folder and all above it? */
export function canReach(path: string, identity: Identity): boolean {
  let folder = resolve(path);
  for (;;) {
    if (!maySearch(folder, identity)) return false;
    const parent = dirname(folder);
    if (parent === folder) return true;
    folder = parent;
  }
}

function maySearch(folder: string, { uid, gid }: Identity): boolean {
  const { uid: owner, gid: group, mode } = statSync(folder);
  const shift = owner === uid ? 6 : group === gid ? 3 : 0;
  return ((mode >> shift) & 1) === 1;
}

/** Gives a folder and all in it to `identity`, without following links. */
export function giveTo(path: string, { uid, gid }: Identity): void {
  const { uid: owner } = lstatSync(path);
  if (owner === uid) return;
  if (lstatSync(path).isDirectory())
    for (const name of readdirSync(path)) giveTo(join(path, name), { uid, gid });
  if (!lstatSync(path).isSymbolicLink()) chownSync(path, uid, gid);
}
