import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { until } from '@streaming-hub/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';

const run = promisify(execFile);
const cli = join(import.meta.dirname, '..', 'cli.ts');
const repository = join(import.meta.dirname, '..', '..', '..', '..');
let folder: string;
let demo: { child: ChildProcess; output: () => string } | undefined;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'demo-test-'));
});

afterEach(async () => {
  const child = demo?.child;
  demo = undefined;
  if (child && child.exitCode === null && child.signalCode === null) {
    child.kill('SIGTERM');
    await once(child, 'exit');
  }
  rmSync(folder, { recursive: true, force: true });
});

/** Starts the demo with a folder of its own for temporary files, so that leftovers are seen. */
function startDemo(...parameters: string[]) {
  return start(process.execPath, [cli, 'demo', ...parameters]);
}

function start(command: string, parameters: readonly string[]) {
  const child = spawn(command, parameters, {
    cwd: repository,
    env: { ...process.env, TMPDIR: folder },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  child.stdout.on('data', (chunk: Buffer) => (text += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (text += chunk.toString()));
  demo = { child, output: () => text };
  return demo;
}

test('a short demo delivers everything, says so and leaves nothing behind', async () => {
  const { child, output } = startDemo('--seconds', '10');
  const [code] = await once(child, 'exit');
  expect(output()).toContain('Every event arrived at every receiver that asked for it.');
  expect(code).toBe(0);
  for (const word of ['published', 'stored', 'delivered', 'failed', 'retried', 'recovered'])
    expect(output()).toMatch(new RegExp(`^ +\\d+\\.\\d s {2}${word} `, 'm'));
  // Effects never stand before their causes.
  const told = ['published', 'stored', 'delivered'].map((word) =>
    output().search(new RegExp(` ${word} +#2 `)),
  );
  expect(told).toEqual(told.toSorted((a, b) => a - b));
  expect(output()).not.toMatch(/NOT|problem/);
  expect(output()).not.toContain('\u001b');
  expect(readdirSync(folder)).toEqual([]);
}, 90_000);

test('the commands it prints work as they stand; Ctrl-C ends it and leaves nothing behind', async () => {
  const { child, output } = startDemo();
  await until(() => output().includes(' published '), 60_000);
  const commands = output().match(/^ {2}curl .*$/gm) ?? [];
  expect(commands).toHaveLength(3);
  for (const command of commands) {
    const { stdout } = await run('sh', ['-c', command]);
    expect(JSON.parse(stdout)).toMatchObject({ data: expect.any(Array) as unknown });
  }
  await until(() => /delivered +#\d+ +holder\.created +→ healthy/.test(output()));
  child.kill('SIGINT');
  // Impatience changes nothing.
  child.kill('SIGINT');
  expect(await once(child, 'exit')).toEqual([0, null]);
  expect(output()).toContain('The hub has ended; its folder is removed.');
  expect(readdirSync(folder)).toEqual([]);
}, 90_000);

test('a signal to npm alone, without a terminal that tells everybody, ends it as well', async () => {
  const { scripts } = JSON.parse(readFileSync(join(repository, 'package.json'), 'utf8')) as {
    scripts: { demo: string };
  };
  // As npm does it: a shell, to which it passes the signals on that it gets.
  const { child, output } = start('sh', ['-c', scripts.demo]);
  await until(() => output().includes(' published '), 60_000);
  child.kill('SIGINT');
  const [code] = await once(child, 'exit');
  expect(code).toBe(0);
  expect(readdirSync(folder)).toEqual([]);
}, 90_000);

test('a SIGTERM while the hub is still starting leaves nothing behind either', async () => {
  const { child, output } = startDemo();
  await until(() => output().includes('Starting a hub'), 60_000);
  child.kill('SIGTERM');
  const [code] = await once(child, 'exit');
  expect(code).toBe(0);
  expect(readdirSync(folder)).toEqual([]);
}, 90_000);

test('a reader that goes away ends the demo, and nothing is left behind', async () => {
  const { child, output } = startDemo();
  await until(() => output().includes(' published '), 60_000);
  child.stdout?.destroy();
  await once(child, 'exit');
  expect(readdirSync(folder)).toEqual([]);
}, 90_000);
