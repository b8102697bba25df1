import { globSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

/**
 * The house rules that a linter does not know:
 *   - imports run in one direction, from the right of this list to the left;
 *   - nobody reaches into another folder's files, only its index.ts;
 *   - what ships does not import the test kit;
 *   - no file is longer than 500 lines.
 */
const source = 'packages/hub/src';

/** Each row may import from the rows above it, never from its own row's other folders or below. */
const rows: readonly (readonly string[])[] = [
  ['base'],
  ['settings', 'metrics'],
  ['store'],
  ['stream', 'inbox', 'keys', 'auth'],
  ['subscriptions'],
  ['attempt', 'matching', 'deliveries'],
  ['ingest', 'outcome'],
  ['lanes'],
  ['http'],
  ['demo'],
  ['.'],
];
/** A file that needs more is two files. */
const linesPerFile_max = 500;

export function checkLayers(): string[] {
  const faults: string[] = [];
  const files = globSync('packages/*/src/**/*.ts').concat(globSync('{scripts,bench}/**/*.ts'));
  for (const file of files.filter((name) => !name.includes('node_modules'))) {
    const text = readFileSync(file, 'utf8');
    const lines = text.split('\n').length;
    if (lines > linesPerFile_max)
      faults.push(`${file}: ${lines} lines, at most ${linesPerFile_max}`);
    if (file.startsWith(`${source}/`)) faults.push(...importFaults(file, text));
  }
  return faults;
}

function importFaults(file: string, text: string): string[] {
  const faults: string[] = [];
  const isTest = /\.test\.ts$|\/(testing|fixture|fixtures|conformance)(\.ts$|\/)/.test(file);
  for (const [, target = ''] of text.matchAll(/from '([^']+)'/g)) {
    if (target === '@streaming-hub/testkit' && !isTest)
      faults.push(`${file}: what ships does not import the test kit`);
    if (!target.startsWith('.') || target.endsWith('.json') || isTest) continue;
    const own = roomOf(file);
    const path = relative('.', join(dirname(file), target));
    const other = roomOf(path);
    if (own === other) continue;
    if (path !== `${source}/${other}/index.ts` && other !== '.') {
      faults.push(`${file}: imports ${target}, but only ${other}/index.ts is open to others`);
    }
    if (rowOf(own) <= rowOf(other)) faults.push(`${file}: ${own} may not import ${other}`);
  }
  return faults;
}

function roomOf(file: string): string {
  const [first = '.', ...rest] = relative(source, file).split('/');
  return rest.length === 0 ? '.' : first;
}

function rowOf(room: string): number {
  const row = rows.findIndex((rooms) => rooms.includes(room));
  if (row < 0) throw new Error(`the folder ${room} has no place in the list of layers`);
  return row;
}
