import type { HubProcess } from '@streaming-hub/testkit';
import type pg from 'pg';
import { openPool, startEmbeddedPostgres } from '../src/store/index.ts';

/** Looks into the database of an embedded hub that is not running. */
export async function onStoppedHub<T>(
  hub: HubProcess,
  look: (pool: pg.Pool) => Promise<T>,
): Promise<T> {
  const postgres = await startEmbeddedPostgres({ data_dir: hub.data_dir });
  const pool = openPool(postgres.config, { application_name: 'test', max: 2 });
  try {
    return await look(pool);
  } finally {
    await pool.end();
    await postgres.stop();
  }
}
