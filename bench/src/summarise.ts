/** Sums up a CPU profile: `node bench/src/summarise.ts FILE [LINES]`. Own time by part and by function. */
import { readFileSync } from 'node:fs';

interface ProfileNode {
  readonly id: number;
  readonly callFrame: {
    readonly functionName: string;
    readonly url: string;
    readonly lineNumber: number;
  };
  readonly children?: readonly number[];
}

interface Profile {
  readonly nodes: readonly ProfileNode[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

const [file, lines_text = '45'] = process.argv.slice(2);
if (!file) throw new Error('which profile?');
const lines = Number(lines_text);
const profile = JSON.parse(readFileSync(file, 'utf8')) as Profile;

const own_us = new Map<number, number>();
for (const [index, id] of profile.samples.entries())
  own_us.set(id, (own_us.get(id) ?? 0) + (profile.timeDeltas[index] ?? 0));

const root = new URL('../..', import.meta.url).href;

function place(node: ProfileNode): string {
  const { url } = node.callFrame;
  if (url === '') return '(engine)';
  return url.replace(root, '').replace(/^.*node_modules\//, '');
}

/** A package, or a folder of the hub. */
function part(node: ProfileNode): string {
  const where = place(node);
  if (where === '(engine)') return `(engine) ${node.callFrame.functionName}`;
  if (where.startsWith('packages/hub/src/')) return where.split('/').slice(0, 4).join('/');
  return where
    .split('/')
    .slice(0, where.startsWith('@') ? 2 : 1)
    .join('/');
}

function table(title: string, nameOf: (node: ProfileNode) => string): void {
  const sums = new Map<string, number>();
  let total = 0;
  for (const node of profile.nodes) {
    const own = own_us.get(node.id) ?? 0;
    if (node.callFrame.functionName === '(idle)') continue;
    total += own;
    sums.set(nameOf(node), (sums.get(nameOf(node)) ?? 0) + own);
  }
  console.log(`\n${title} (busy ${(total / 1e6).toFixed(2)} s)`);
  const sorted = [...sums].toSorted((a, b) => b[1] - a[1]).slice(0, lines);
  for (const [name, own] of sorted)
    console.log(
      `${((own / total) * 100).toFixed(1).padStart(5)} % ${(own / 1000).toFixed(0).padStart(7)} ms  ${name}`,
    );
}

table('by part', part);
table(
  'by function',
  (node) =>
    `${node.callFrame.functionName || '(anonymous)'}  ${place(node)}:${node.callFrame.lineNumber + 1}`,
);
