import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { scriptOf } from './script.ts';

export const repository = resolve(import.meta.dirname, '..', '..', '..', '..');

export interface PageRun {
  readonly code: number | null;
  readonly output: string;
}

export interface PageOptions {
  /** What stands on the page → what stands for it here, such as a free port. */
  readonly replacements: Readonly<Record<string, string>>;
  readonly environment?: Readonly<Record<string, string>>;
  /** Files that the page takes for granted, by name. */
  readonly files?: Readonly<Record<string, string>>;
}

/** Does what a page says, in a folder that looks like the repository but may be written to. */
export async function runPage(page: string, options: PageOptions): Promise<PageRun> {
  const folder = mkdtempSync(join(tmpdir(), 'hub-page-'));
  for (const name of readdirSync(repository))
    if (!['data', '.git'].includes(name)) symlinkSync(join(repository, name), join(folder, name));
  for (const [name, content] of Object.entries(options.files ?? {}))
    writeFileSync(join(folder, name), content);
  let text = readFileSync(join(repository, page), 'utf8');
  for (const [here, there] of Object.entries(options.replacements))
    text = text.replaceAll(here, there);
  const path = [dirname(process.execPath), process.env['PATH']].join(delimiter);
  const shell = spawn('bash', ['-c', scriptOf(text)], {
    cwd: folder,
    env: {
      ...process.env,
      STREAMING_HUB_DATA_DIR: join(folder, 'data'),
      ...options.environment,
      PATH: path,
    },
    stdio: 'ignore',
    // A group of its own, so that what the page left running can be ended with it.
    detached: true,
  });
  const endAll = () => endGroup(shell.pid ?? 0);
  process.once('exit', endAll);
  const [code] = (await once(shell, 'exit')) as [number | null];
  endAll();
  process.off('exit', endAll);
  const output = readFileSync(join(folder, 'said'), 'utf8');
  rmSync(folder, { recursive: true, force: true });
  return { code, output };
}

/** Whoever did not obey the script's own end. */
function endGroup(leader: number): void {
  if (leader === 0) return;
  try {
    process.kill(-leader, 'SIGKILL');
  } catch {
    // Nobody of the group is left, as it should be.
  }
}
