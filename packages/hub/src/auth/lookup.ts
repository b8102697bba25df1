import type pg from 'pg';
import type { Clock } from '../base/index.ts';
import { hashApiKey } from './keys.ts';
import type { Permission, Principal } from './principal.ts';

/** A revoked key is refused after at most this long. */
const cached_ms = 800;
/** Keys remembered at once; guesses cannot grow it. */
const cachedKeys_max = 1_000;
/** `last_used_at` is kept to this precision, so that a busy key writes once a minute. */
const lastUsedPrecision_seconds = 60;

interface Entry {
  readonly until_ms: number;
  readonly found: Promise<Principal | null>;
}

const lookUp_sql = /* sql */ `
select id, tenant_id, permission,
  last_used_at is null or last_used_at < now() - make_interval(secs => $2) as stale
from api_keys where hash = $1 and revoked_at is null`;

/** Finds keys by their hash, remembering each answer (also "no such key") for less than a second. */
export function createKeyLookup(parts: {
  pool: pg.Pool;
  clock: Clock;
  onFault: (fault: unknown) => void;
}) {
  const { pool, clock, onFault } = parts;
  const cache = new Map<string, Entry>();

  async function find(hash: Buffer): Promise<Principal | null> {
    const answer = await pool.query<{
      id: string;
      tenant_id: string;
      permission: Permission;
      stale: boolean;
    }>({ name: 'find-api-key', text: lookUp_sql, values: [hash, lastUsedPrecision_seconds] });
    const row = answer.rows[0];
    if (!row) return null;
    if (row.stale) {
      // Bookkeeping: the request does not wait for it and does not fail with it.
      pool.query('update api_keys set last_used_at = now() where id = $1', [row.id]).catch(onFault);
    }
    return { tenant_id: row.tenant_id, permission: row.permission, api_key_id: row.id };
  }

  return (key: string): Promise<Principal | null> => {
    const hash = hashApiKey(key);
    const name = hash.toString('base64');
    const now_ms = clock.monotonic_ms();
    const known = cache.get(name);
    if (known && known.until_ms > now_ms) return known.found;
    const found = find(hash);
    cache.delete(name);
    cache.set(name, { until_ms: now_ms + cached_ms, found });
    // A failed look-up is not an answer: the next request asks again.
    found.catch(() => cache.delete(name));
    if (cache.size > cachedKeys_max) {
      const oldest = cache.keys().next();
      if (!oldest.done) cache.delete(oldest.value);
    }
    return found;
  };
}
