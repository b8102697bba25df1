import type pg from 'pg';
import { withTransaction } from '../store/index.ts';

const tries_max = 4;
/** serialization_failure, deadlock_detected, unique_violation: two changes met, and one of them begins again. */
const collisions: ReadonlySet<string> = new Set(['40001', '40P01', '23505']);

/** `withTransaction`, begun again when it collided with another one. `work` must do nothing but queries. */
export async function collidingTransaction<T>(
  pool: pg.Pool,
  work: (client: pg.PoolClient) => Promise<T>,
): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await withTransaction(pool, work);
    } catch (error) {
      const code = error instanceof Error && 'code' in error ? String(error.code) : '';
      if (tries >= tries_max || !collisions.has(code)) throw error;
    }
  }
}
