import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startEmbeddedPostgres } from '@streaming-hub/hub/store';

/**
 * Starts the run's one Postgres and leaves its address in TEST_POSTGRES_DSN, unless that is set
 * already: by whoever has a server at hand, or by the setup of another project of this run.
 * It listens on TCP too, so that tests can put a proxy before it, and does not sync to disk.
 */
export async function setup(): Promise<(() => Promise<void>) | undefined> {
  if (process.env['TEST_POSTGRES_DSN']) return undefined;
  const data_dir = mkdtempSync(join(tmpdir(), 'hub-test-'));
  const port = await freePort();
  const server = await startEmbeddedPostgres({
    data_dir,
    port,
    settings: {
      listen_addresses: '127.0.0.1',
      fsync: 'off',
      full_page_writes: 'off',
      max_connections: '300',
    },
  });
  process.env['TEST_POSTGRES_DSN'] =
    `postgresql://${server.config.user}@127.0.0.1:${port}/postgres`;
  return async () => {
    delete process.env['TEST_POSTGRES_DSN'];
    await server.stop();
    rmSync(data_dir, { recursive: true, force: true });
  };
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer();
    probe.once('error', reject);
    probe.listen(0, '127.0.0.1', () => {
      const address = probe.address();
      probe.close(() =>
        address && typeof address === 'object'
          ? resolve(address.port)
          : reject(new Error('no port')),
      );
    });
  });
}
