import { spawnSync } from 'node:child_process';
import { chmodSync, cpSync, lstatSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { findPackage, provideBinaries } from './binaries.ts';

const nobody = { uid: 65_534, gid: 65_534 };
const isRoot = process.getuid?.() === 0;
let folder: string;
let native: string;
const found = findPackage();

/** The package as npm leaves it when install scripts are off: without the links between its libraries. */
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'hub-binaries-'));
  native = join(folder, 'closed', 'native');
  mkdirSync(join(folder, 'closed'), { mode: 0o700 });
  cpSync(found.native, native, {
    recursive: true,
    filter: (path) => !lstatSync(path).isSymbolicLink(),
  });
  chmodSync(folder, 0o755);
});

afterEach(() => rmSync(folder, { recursive: true, force: true }));

function versionOf(folder_of_programs: string, identity?: { uid: number; gid: number }): string {
  const program = join(folder_of_programs, 'bin', 'postgres');
  const { stdout, stderr } = spawnSync(program, ['--version'], {
    ...identity,
    cwd: '/',
    encoding: 'utf8',
  });
  return stdout || stderr;
}

test('makes the links that a skipped install script did not make', () => {
  const provided = provideBinaries(undefined, [], { native, version: found.version });
  expect(provided.native).toBe(native);
  expect(versionOf(native)).toMatch(/PostgreSQL\) 18/);
});

test.runIf(isRoot)(
  'copies binaries that their user cannot reach, once, and mends a damaged copy',
  () => {
    const place = join(folder, 'open');
    const provide = () =>
      provideBinaries(nobody, [join(folder, 'closed', 'hidden'), place], {
        native,
        version: found.version,
      });
    const { native: copy } = provide();
    expect(copy).toBe(join(place, `postgres-${found.version}`));
    expect(versionOf(copy, nobody)).toMatch(/PostgreSQL\) 18/);

    const made = lstatSync(copy).ino;
    provide();
    expect(lstatSync(copy).ino).toBe(made);

    rmSync(join(copy, 'share'), { recursive: true });
    provide();
    expect(lstatSync(join(copy, 'share')).isDirectory()).toBe(true);
  },
);

test.runIf(isRoot)('takes no programs from a place that others can write to', () => {
  const place = join(folder, 'open');
  mkdirSync(place);
  chmodSync(place, 0o777);
  expect(() => provideBinaries(nobody, [place], { native, version: found.version })).toThrow(
    /could not be copied/,
  );
});
