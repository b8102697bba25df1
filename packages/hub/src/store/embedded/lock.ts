import { spawnSync } from 'node:child_process';
import {
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  openSync,
  readFileSync,
  writeSync,
} from 'node:fs';
import { createServer, type Server } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { StoreError } from '../error.ts';

/** macOS: open(2) takes the lock itself. */
const darwin_exclusive_lock = 0x20;
/** `flock` exits with this when the lock is held. */
const flock_held = 1;
const pid_wait_ms_max = 500;

export interface FolderLock {
  release(): void;
}

/**
 * Takes the folder for this process. The kernel keeps the lock and gives it back however the
 * process ends, so there is no stale lock to judge and no race between two that start at once.
 * The file's content, the owner's pid, only serves the message.
 * @throws StoreError `folder_in_use`, naming the owner
 */
export async function lockFolder(data_dir: string, path: string): Promise<FolderLock> {
  const held = await take(path);
  if (held) return held;
  const owner = await readOwner(path);
  throw new StoreError(
    'folder_in_use',
    `The data folder ${data_dir} is in use by another hub (${owner}); stop that one, or give this one a folder of its own with STREAMING_HUB_DATA_DIR.`,
  );
}

async function take(path: string): Promise<FolderLock | undefined> {
  const darwin = process.platform === 'darwin';
  const flags =
    constants.O_RDWR |
    constants.O_CREAT |
    (darwin ? darwin_exclusive_lock | constants.O_NONBLOCK : 0);
  let file: number;
  try {
    file = openSync(path, flags, 0o644);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (darwin && code === 'EAGAIN') return undefined;
    throw new StoreError(
      'embedded_unavailable',
      `User ${process.getuid?.()} may not write to the data folder (${code}: ${path}).`,
      {
        cause: error,
      },
    );
  }
  const guard = darwin ? 'locked' : await lockOpenFile(file);
  if (guard === 'held') {
    closeSync(file);
    return undefined;
  }
  ftruncateSync(file);
  writeSync(file, `${process.pid}\n`, 0);
  return {
    release() {
      ftruncateSync(file);
      closeSync(file);
      if (guard !== 'locked') guard.close();
    },
  };
}

/**
 * flock(2) belongs to the open file, which we share with the short-lived `flock` program: the lock
 * stays ours when it has ended. Where the program is missing, a socket in the abstract namespace,
 * named after the file's inode, does the same within one network namespace.
 */
async function lockOpenFile(file: number): Promise<'locked' | 'held' | Server> {
  const { status, error } = spawnSync('flock', ['-n', '3'], {
    stdio: ['ignore', 'ignore', 'ignore', file],
  });
  if (!error && status === 0) return 'locked';
  if (!error && status === flock_held) return 'held';
  const { dev, ino } = fstatSync(file);
  const server = createServer();
  return new Promise((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) =>
      cause.code === 'EADDRINUSE' ? resolve('held') : reject(cause),
    );
    server.listen(`\0streaming-hub-${dev}-${ino}`, () => resolve(server.unref()));
  });
}

/** The owner writes its pid just after it took the lock. */
async function readOwner(path: string): Promise<string> {
  const end_ms = performance.now() + pid_wait_ms_max;
  for (;;) {
    const text = readFileSync(path, 'utf8').trim();
    if (text !== '') return `process ${text}`;
    if (performance.now() > end_ms) return 'its process did not say its number';
    await pause(10);
  }
}
