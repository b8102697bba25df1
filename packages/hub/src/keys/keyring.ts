import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import type pg from 'pg';
import { key_bytes, openBytes, sealBytes } from './cipher.ts';
import { KekMismatch, KeyError } from './errors.ts';
import type { KeyProvider } from './provider.ts';

/** Unwrapped data keys kept in memory; the least recently used one goes first. */
const data_keys_cached_max = 10_000;

/** What a secret belongs to; sealed bytes open only for exactly the same three. */
export interface SealContext {
  readonly tenant_id: string;
  readonly subscription_id: string;
  readonly purpose: 'signing_secret' | 'destination_credential';
}

export interface Sealed {
  /** Which of the tenant's data keys sealed it. */
  readonly key_id: number;
  readonly sealed: Buffer;
}

/** Seals and opens the secrets of tenants. Everything it returns or holds unsealed stays in memory. */
export interface Keyring {
  seal(context: SealContext, plaintext: string): Promise<Sealed>;
  /** @throws KekMismatch | KeyError `seal_broken` */
  unseal(context: SealContext, sealed: Sealed): Promise<string>;
  /**
   * Looks whether every stored data key can be unwrapped; for the start of the hub.
   * @throws KekMismatch
   */
  check(): Promise<void>;
}

interface DataKeyRow {
  readonly id: number;
  readonly kek_id: string;
  readonly wrapped: Buffer;
}

const wrapContext = (tenant_id: string, id: number): string[] => [
  tenant_id,
  String(id),
  'data_key',
];
const sealContext = (context: SealContext): string[] => [
  context.tenant_id,
  context.subscription_id,
  context.purpose,
];

/** Envelope encryption: one AES-256-GCM data key per tenant in `tenant_keys`, wrapped by the provider's key. */
export function createKeyring(pool: pg.Pool, provider: KeyProvider): Keyring {
  // Promises, so that a burst for one tenant unwraps once. KeyObjects, because they print without their bytes.
  const unwrapped = new Map<string, Promise<KeyObject>>();
  const newest = new Map<string, Promise<number>>();

  function remember<T>(
    cache: Map<string, Promise<T>>,
    name: string,
    load: () => Promise<T>,
  ): Promise<T> {
    const known = cache.get(name);
    if (known) {
      cache.delete(name);
      cache.set(name, known);
      return known;
    }
    const loading = load();
    cache.set(name, loading);
    loading.catch(() => cache.get(name) === loading && cache.delete(name));
    const [oldest] = cache.keys();
    if (cache.size > data_keys_cached_max && oldest !== undefined) cache.delete(oldest);
    return loading;
  }

  async function unwrap(tenant_id: string, row: DataKeyRow): Promise<KeyObject> {
    const bytes = await provider.unwrap(row.kek_id, wrapContext(tenant_id, row.id), row.wrapped);
    const key = createSecretKey(bytes);
    bytes.fill(0);
    return key;
  }

  function dataKey(tenant_id: string, id: number): Promise<KeyObject> {
    return remember(unwrapped, JSON.stringify([tenant_id, id]), async () => {
      const found = await pool.query<DataKeyRow>(
        'select id, kek_id, wrapped from tenant_keys where tenant_id = $1 and id = $2',
        [tenant_id, id],
      );
      const row = found.rows[0];
      if (!row) throw new KeyError('seal_broken', `The tenant has no data key ${id}.`);
      return unwrap(tenant_id, row);
    });
  }

  async function makeDataKey(tenant_id: string): Promise<void> {
    const bytes = randomBytes(key_bytes);
    const { kek_id, wrapped } = await provider.wrap(wrapContext(tenant_id, 1), bytes);
    bytes.fill(0);
    // Another process may have been first; then its key is the one.
    await pool.query(
      'insert into tenant_keys (tenant_id, id, kek_id, wrapped) values ($1, 1, $2, $3) on conflict do nothing',
      [tenant_id, kek_id, wrapped],
    );
  }

  /** The id of the data key that seals new secrets of the tenant; makes the first one. */
  function newestKeyId(tenant_id: string): Promise<number> {
    return remember(newest, tenant_id, async () => {
      const text = 'select max(id) as id from tenant_keys where tenant_id = $1';
      const found = await pool.query<{ id: number | null }>(text, [tenant_id]);
      const id = found.rows[0]?.id ?? null;
      if (id !== null) return id;
      await makeDataKey(tenant_id);
      return 1;
    });
  }

  return {
    async seal(context, plaintext) {
      const key_id = await newestKeyId(context.tenant_id);
      const key = await dataKey(context.tenant_id, key_id);
      return {
        key_id,
        sealed: sealBytes(key, sealContext(context), Buffer.from(plaintext, 'utf8')),
      };
    },
    async unseal(context, { key_id, sealed }) {
      const key = await dataKey(context.tenant_id, key_id);
      return openBytes(key, sealContext(context), sealed).toString('utf8');
    },
    async check() {
      const unknown = await pool.query<{ kek_id: string }>(
        'select kek_id from tenant_keys where not kek_id = any($1::text[]) limit 1',
        [provider.kek_ids],
      );
      const row = unknown.rows[0];
      if (row) throw new KekMismatch(row.kek_id, provider.kek_ids);
    },
  };
}
