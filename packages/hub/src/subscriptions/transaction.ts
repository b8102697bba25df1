import type pg from 'pg';
import { withTransaction } from '../store/index.ts';

const tries_max = 4;
/** serialization_failure, deadlock_detected: it met a dispatcher's write, and one of them begins again. */
const collisions: ReadonlySet<string> = new Set(['40001', '40P01']);

/**
 * A transaction that changes a tenant's subscriptions. One at a time per tenant, so that two of them
 * never wait for each other's lanes; begun again when it collided with a dispatcher. `work` must do
 * nothing but queries.
 */
export async function tenantTransaction<T>(
  pool: pg.Pool,
  tenant_id: string,
  work: (client: pg.PoolClient) => Promise<T>,
): Promise<T> {
  const name = `subscriptions of ${tenant_id}`;
  for (let tries = 1; ; tries += 1) {
    try {
      return await withTransaction(pool, async (client) => {
        await client.query('select pg_advisory_xact_lock(hashtextextended($1, 0))', [name]);
        return work(client);
      });
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? String(error.code) : '';
      if (tries >= tries_max || !collisions.has(code)) throw error;
    }
  }
}
