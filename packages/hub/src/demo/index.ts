import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openApi } from './api.ts';
import { createScreen } from './screen.ts';
import { show } from './show.ts';
import { listenForStop } from './stop.ts';

/** The part of a hub that the demo needs: everything else it does over HTTP. */
export interface DemoHub {
  start(): Promise<void>;
  stop(): Promise<void>;
  url(): string | null;
}

export interface DemoOptions {
  /** Ends by itself after so long; null = with Ctrl-C. */
  readonly seconds: number | null;
  /** Builds a hub from these settings. */
  readonly openHub: (environment: Readonly<Record<string, string>>) => Promise<DemoHub>;
}

const tenant_id = 'demo';

/**
 * A hub in a temporary folder, three receivers and a producer. Answers the exit code: 0 when
 * everything that was asked for arrived with a valid signature, or when Ctrl-C ended an endless
 * demo; else 1. Folder and processes are gone afterwards, however it ends.
 */
export async function runDemo({ seconds, openHub }: DemoOptions): Promise<number> {
  const stop = listenForStop(process.stdout);
  const screen = createScreen(process.stdout);
  const folder = await mkdtemp(join(tmpdir(), 'streaming-hub-demo-'));
  try {
    screen.text('\nStarting a hub with its own database in a temporary folder …\n');
    const hub = await openHub({
      STREAMING_HUB_DATA_DIR: folder,
      STREAMING_HUB_HTTP_LISTEN_ADDR: '127.0.0.1:0',
      STREAMING_HUB_TENANT_ID: tenant_id,
    });
    try {
      await hub.start();
      const api = openApi(hub.url() ?? '');
      return await show({ api, screen, tenant_id, seconds, stop: stop.signal });
    } finally {
      await hub.stop();
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
    screen.text('The hub has ended; its folder is removed.\n');
    stop.dispose();
  }
}
