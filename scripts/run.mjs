// Runs a command of this repository on any Node from 20 on: installs what is missing, then hands
// over to the Node that the repository carries. The scripts in package.json begin with `exec`: npm
// passes signals on to the shell it started, and a shell that waits would keep them from us.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const [command = 'help', ...given] = process.argv.slice(2);

/** Command → the script that runs it, and the arguments that come before the caller's. */
const scripts = {
  demo: ['packages/hub/src/cli.ts', 'demo'],
  start: ['packages/hub/src/cli.ts', 'start'],
  hub: ['packages/hub/src/cli.ts'],
  test: ['scripts/test.ts'],
  bench: ['bench/src/main.ts'],
  check: ['scripts/check.ts'],
};

const script = scripts[command];
if (!script) {
  console.error(`Unknown command "${command}". There are: ${Object.keys(scripts).join(', ')}.`);
  process.exit(2);
}

install();
const child = spawn(carriedNode(), [...script, ...given], { stdio: 'inherit', cwd: root });
// A terminal sends its Ctrl-C to the child as well; a signal sent to this process alone is passed on.
process.on('SIGINT', () => {
  if (!process.stdin.isTTY) child.kill('SIGINT');
});
process.on('SIGTERM', () => child.kill('SIGTERM'));
child.on('exit', (code, signal) => process.exit(signal ? 1 : (code ?? 1)));

/** `npm ci`, only when node_modules is absent or older than the lock file. */
function install() {
  const installed = join(root, 'node_modules', '.package-lock.json');
  const lock = join(root, 'package-lock.json');
  if (existsSync(installed) && statSync(installed).mtimeMs >= statSync(lock).mtimeMs) return;
  console.error('Installing dependencies (npm ci) …');
  const npm = process.env.npm_execpath;
  const args = [
    'ci',
    '--no-audit',
    '--no-fund',
    '--include=dev',
    '--include=optional',
    '--loglevel=error',
  ];
  const result = npm?.endsWith('js')
    ? spawnSync(process.execPath, [npm, ...args], { cwd: root, stdio: ['ignore', 2, 2] })
    : spawnSync('npm', args, { cwd: root, stdio: ['ignore', 2, 2] });
  if (result.status !== 0) {
    console.error('npm ci failed; see its messages above.');
    process.exit(1);
  }
}

/** The Node of the repository's dependencies; the caller's own where that one is missing and new enough. */
function carriedNode() {
  const carried = join(root, 'node_modules', 'node', 'bin', 'node');
  if (existsSync(carried)) return carried;
  if (Number(process.versions.node.split('.')[0]) >= 24) return process.execPath;
  console.error(
    `Node 24 or newer is needed and this is ${process.versions.node}: the one that "npm ci" should have installed is missing. Run "npm ci" with install scripts allowed for the package "node".`,
  );
  process.exit(1);
}
