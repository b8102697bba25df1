import { newWebhookSecret } from '@streaming-hub/contract';
import type pg from 'pg';
import { type Clock, systemClock } from '../base/index.ts';
import { KeyError, type Keyring, type Sealed } from '../keys/index.ts';

/** Versions that sign at the same time, the newest included. */
const live_versions_max = 5;
const cached_subscriptions_max = 20_000;
const load_batch_max = 500;
const purpose = 'signing_secret';

/** Which secrets are wanted; a higher version means that they may have changed. */
export interface SecretOwner {
  readonly id: string;
  readonly version: number;
}

interface SecretRow {
  readonly subscription_id: string;
  readonly tenant_id: string;
  readonly key_id: number;
  readonly sealed: Buffer;
  readonly expires_ms: string | null;
}

interface CacheEntry {
  readonly version: number;
  /** Wall clock: when the first of them ends. */
  readonly until_ms: number;
  readonly secrets: readonly string[];
}

export interface SealedSecret extends Sealed {
  readonly plain: string;
}

export interface SecretStore {
  /** A new secret, sealed for this subscription but not stored yet. */
  prepare(owner: { tenant_id: string; subscription_id: string }): Promise<SealedSecret>;
  /** Stores the first version, in the caller's transaction. */
  insertFirst(
    client: pg.ClientBase,
    owner: { tenant_id: string; subscription_id: string },
    secret: Sealed,
  ): Promise<void>;
  /** Stores the next version; older ones end after the overlap. The caller holds the subscription's row lock. */
  insertNext(
    client: pg.ClientBase,
    owner: { tenant_id: string; subscription_id: string },
    secret: Sealed,
    overlap_seconds: number,
  ): Promise<void>;
  /**
   * `whsec_…`, newest first and never empty: what signs an attempt that starts now. Kept in memory until
   * the version rises or one of the secrets ends; what is not there is read for many owners at once.
   * @throws KeyError when there is none, or they cannot be opened: then nothing may be sent.
   */
  live(owner: SecretOwner): readonly string[] | Promise<readonly string[]>;
}

export function createSecretStore(
  pool: pg.Pool,
  keys: Keyring,
  clock: Clock = systemClock,
): SecretStore {
  const cache = new Map<string, CacheEntry>();

  function keep(owner: SecretOwner, entry: CacheEntry): void {
    cache.delete(owner.id);
    cache.set(owner.id, entry);
    const [oldest] = cache.keys();
    if (cache.size > cached_subscriptions_max && oldest !== undefined) cache.delete(oldest);
  }

  async function open(owner: SecretOwner, rows: readonly SecretRow[]): Promise<readonly string[]> {
    if (rows.length === 0) {
      throw new KeyError(
        'seal_broken',
        'The subscription has no signing secret; rotate it to get one.',
      );
    }
    const secrets = await Promise.all(
      rows.map((row) =>
        keys.unseal(
          { tenant_id: row.tenant_id, subscription_id: row.subscription_id, purpose },
          row,
        ),
      ),
    );
    const ends_ms = rows.flatMap((row) =>
      row.expires_ms === null ? [] : [Number(row.expires_ms)],
    );
    keep(owner, { version: owner.version, until_ms: Math.min(...ends_ms), secrets });
    return secrets;
  }

  async function load(ids: readonly string[]): Promise<Map<string, SecretRow[]>> {
    const found = await pool.query<SecretRow>({
      name: 'live-secrets',
      text: /* sql */ `
        select subscription_id, tenant_id, key_id, sealed, extract(epoch from expires_at) * 1000 as expires_ms
        from secrets where subscription_id = any($1::uuid[]) and (expires_at is null or expires_at > now())
        order by subscription_id, version desc`,
      values: [ids],
    });
    return Map.groupBy(found.rows, (row) => row.subscription_id);
  }

  // A dispatcher asks for many lanes in one turn of the event loop; they share one query.
  let batch: {
    readonly ids: Set<string>;
    readonly rows: Promise<Map<string, SecretRow[]>>;
  } | null = null;

  async function loadWithOthers(owner: SecretOwner): Promise<readonly string[]> {
    if (!batch || batch.ids.size >= load_batch_max) {
      const ids = new Set<string>();
      const rows = new Promise<void>((resolve) => setImmediate(resolve)).then(() => {
        if (batch?.ids === ids) batch = null;
        return load([...ids]);
      });
      batch = { ids, rows };
    }
    const { ids, rows } = batch;
    ids.add(owner.id);
    return open(owner, (await rows).get(owner.id) ?? []);
  }

  return {
    async prepare(owner) {
      const plain = newWebhookSecret();
      return { plain, ...(await keys.seal({ ...owner, purpose }, plain)) };
    },
    async insertFirst(client, owner, secret) {
      await client.query(
        'insert into secrets (subscription_id, version, tenant_id, key_id, sealed) values ($1, 1, $2, $3, $4)',
        [owner.subscription_id, owner.tenant_id, secret.key_id, secret.sealed],
      );
    },
    async insertNext(client, owner, secret, overlap_seconds) {
      // An end that was set earlier is kept; beyond the newest few, and after their end, versions are removed.
      await client.query(
        /* sql */ `
        update secrets set expires_at = least(expires_at, now() + make_interval(secs => $2))
        where subscription_id = $1`,
        [owner.subscription_id, overlap_seconds],
      );
      await client.query(
        /* sql */ `
        insert into secrets (subscription_id, version, tenant_id, key_id, sealed)
        select $1, coalesce(max(version), 0) + 1, $2, $3, $4 from secrets where subscription_id = $1`,
        [owner.subscription_id, owner.tenant_id, secret.key_id, secret.sealed],
      );
      await client.query(
        /* sql */ `
        delete from secrets where subscription_id = $1 and (expires_at <= now() or version not in (
          select version from secrets where subscription_id = $1 order by version desc limit $2))`,
        [owner.subscription_id, live_versions_max],
      );
    },
    live(owner) {
      const known = cache.get(owner.id);
      if (known && known.version >= owner.version && known.until_ms > clock.now_ms())
        return known.secrets;
      return loadWithOthers(owner);
    },
  };
}
