import { createHash, randomBytes } from 'node:crypto';
import type pg from 'pg';
import { uuidv7 } from 'uuidv7';
import { isTenantId, type Permission, permissions } from './principal.ts';

export const apiKeyPrefix = 'shk_';
const randomBytesInKey = 32;

export interface ApiKey {
  readonly id: string;
  readonly tenant_id: string;
  readonly permission: Permission;
  readonly created_at: Date;
  readonly last_used_at: Date | null;
  readonly revoked_at: Date | null;
}

/** `shk_` and 32 random bytes in base64url. Anything else cannot be a key and is not looked up. */
export function looksLikeApiKey(text: string): boolean {
  return /^shk_[A-Za-z0-9_-]{43}$/.test(text);
}

/** A key has 256 random bits, so one plain hash is as strong as the key itself. */
export function hashApiKey(key: string): Buffer {
  return createHash('sha256').update(key).digest();
}

/**
 * Makes a key; its text exists only in this answer.
 * @throws RangeError for a malformed tenant or an unknown permission.
 */
export async function createApiKey(
  pool: pg.Pool,
  input: { readonly tenant_id: string; readonly permission: Permission },
): Promise<ApiKey & { readonly key: string }> {
  if (!isTenantId(input.tenant_id)) {
    throw new RangeError(
      'a tenant id has 1 to 256 letters, digits, - or _ and starts with a letter or digit',
    );
  }
  if (!permissions.includes(input.permission)) {
    throw new RangeError(`a permission is one of ${permissions.join(', ')}`);
  }
  const key = apiKeyPrefix + randomBytes(randomBytesInKey).toString('base64url');
  const answer = await pool.query<ApiKey>(
    /* sql */ `
    insert into api_keys (id, tenant_id, hash, permission) values ($1, $2, $3, $4)
    returning id, tenant_id, permission, created_at, last_used_at, revoked_at`,
    [uuidv7(), input.tenant_id, hashApiKey(key), input.permission],
  );
  const stored = answer.rows[0];
  if (!stored) throw new Error('the new key was not stored');
  return { ...stored, key };
}

/** Keys of one tenant, newest first, without their text. At most 1 000. */
export async function listApiKeys(pool: pg.Pool, tenant_id: string): Promise<readonly ApiKey[]> {
  const answer = await pool.query<ApiKey>(
    /* sql */ `
    select id, tenant_id, permission, created_at, last_used_at, revoked_at
    from api_keys where tenant_id = $1 order by id desc limit 1000`,
    [tenant_id],
  );
  return answer.rows;
}

/** Ends a key; requests with it are refused within a second by every process. False when there is no such live key. */
export async function revokeApiKey(pool: pg.Pool, id: string): Promise<boolean> {
  const answer = await pool.query(
    /* sql */ `update api_keys set revoked_at = now() where id = $1 and revoked_at is null`,
    [id],
  );
  return answer.rowCount === 1;
}
