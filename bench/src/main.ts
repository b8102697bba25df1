/**
 * The benchmark: `npm run bench [-- P1 P2 … --quick --repeat N --prefer --profile DIR --json FILE]`.
 * Prints ratios within this run, with raw figures, versions and the machine beside them.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { cleanUp, prefer, preferAll } from './cleanup.ts';
import { openBench } from './environment.ts';
import type { Result } from './figures.ts';
import { load, machine } from './machine.ts';
import { p1 } from './p1.ts';
import { p2 } from './p2.ts';
import { p3 } from './p3.ts';
import { p11 } from './p11.ts';
import { printResult } from './print.ts';

const scenarios = { P1: p1, P2: p2, P3: p3, P11: p11 } as const;
type Id = keyof typeof scenarios;
const ids = Object.keys(scenarios) as Id[];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: 'boolean', default: false },
    repeat: { type: 'string', default: '1' },
    prefer: { type: 'boolean', default: false },
    profile: { type: 'string' },
    json: { type: 'string' },
  },
});

const unknown = positionals.filter((name) => !ids.includes(name as Id));
const repeat = Number(values.repeat);
if (unknown.length > 0 || !Number.isInteger(repeat) || repeat < 1) {
  console.error(
    `Unknown: ${unknown.join(' ') || `--repeat ${values.repeat}`}. There are ${ids.join(' ')}, --quick, --repeat N, --prefer, --profile DIR, --json FILE.`,
  );
  process.exit(2);
}

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.on(signal, () => {
    console.error('\nstopping …');
    void cleanUp().finally(() => process.exit(130));
  });
}

process.on('uncaughtException', (error) => {
  console.error(error);
  void cleanUp().finally(() => process.exit(1));
});

async function run(): Promise<void> {
  const profile = values.profile === undefined ? null : resolve(values.profile);
  if (profile) mkdirSync(profile, { recursive: true });
  for (const [name, value] of Object.entries(machine())) console.log(`${name.padEnd(14)} ${value}`);
  if (values.prefer) preferAll();
  prefer(process.pid);
  const bench = await openBench({ quick: values.quick, repeat, profile });
  const wanted = positionals.length > 0 ? (positionals as Id[]) : ids;
  const results: Result[] = [];
  for (const id of wanted) {
    console.log(`\n${id}: running (load ${load()}) …`);
    const result = await scenarios[id](bench);
    printResult(result);
    results.push(result);
    if (values.json) writeFileSync(values.json, `${JSON.stringify(results, null, 2)}\n`);
  }
}

try {
  await run();
} catch (error) {
  console.error(error);
  process.exitCode = 1;
} finally {
  await cleanUp();
}
