import { spawn } from 'node:child_process';
import { checkLayers } from './layers.ts';

/** Format, lint, types, dead code and layers, side by side. Prints what failed; silent about the rest. */
const bin = (name: string) => `node_modules/.bin/${name}`;

const checks: readonly { name: string; command: readonly string[] }[] = [
  { name: 'format', command: [bin('biome'), 'check', '--reporter=summary'] },
  { name: 'lint', command: [bin('oxlint'), '--type-aware'] },
  { name: 'types', command: [bin('tsc'), '-p', '.'] },
  { name: 'dead code', command: [bin('knip'), '--no-progress'] },
];

const results = await Promise.all(checks.map(run));
const faults = checkLayers();
results.push({ name: 'layers', ok: faults.length === 0, output: faults.join('\n') });

for (const { name, ok, output } of results) {
  console.log(`${ok ? 'ok    ' : 'FAILED'} ${name}`);
  if (!ok) console.log(output);
}
process.exitCode = results.every((result) => result.ok) ? 0 : 1;

function run({ name, command }: (typeof checks)[number]) {
  return new Promise<{ name: string; ok: boolean; output: string }>((resolve) => {
    const [program = '', ...parameters] = command;
    const child = spawn(program, parameters, { stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => (output += chunk));
    child.stderr.on('data', (chunk: Buffer) => (output += chunk));
    child.on('error', (error) => resolve({ name, ok: false, output: String(error) }));
    child.on('close', (code) => resolve({ name, ok: code === 0, output }));
  });
}
