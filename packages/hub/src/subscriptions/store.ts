import { HubError } from '@streaming-hub/contract';
import type pg from 'pg';
import { uuidv7 } from 'uuidv7';
import { canonicalAddress } from './address.ts';
import { laneAfterMove, laneFor } from './lane-address.ts';
import { isUuid, type SubscriptionRow, subscriptionColumns, subscriptionOf } from './rows.ts';
import {
  changeSettings,
  checkSettings,
  completeSettings,
  settingsOf,
  type UrlGuard,
} from './rules.ts';
import type { SecretStore } from './secrets.ts';
import { tenantTransaction } from './transaction.ts';
import type {
  NewSubscription,
  Subscription,
  SubscriptionPatch,
  SubscriptionSettings,
} from './types.ts';

/** Live subscriptions of one tenant. Every event is matched with all of them. */
const tenantSubscriptions_max = 10_000;

export interface SubscriptionStoreParts {
  readonly pool: pg.Pool;
  readonly guard: UrlGuard;
  readonly secrets: SecretStore;
}

/** All of it by tenant: another tenant's subscription is not found. Every method throws HubError. */
export interface SubscriptionStore {
  /** `validation_failed` | `destination_refused` | `conflict` (too many). The secret is in this answer and nowhere else. */
  create(
    tenant_id: string,
    given: NewSubscription,
  ): Promise<{ subscription: Subscription; secret: string }>;
  /** In the order of creation, after `after_id`. */
  list(
    tenant_id: string,
    page: { after_id: string | null; limit: number },
  ): Promise<Subscription[]>;
  /** `not_found` */
  get(tenant_id: string, id: string): Promise<Subscription>;
  /** `not_found` | `validation_failed` | `destination_refused` */
  change(tenant_id: string, id: string, patch: SubscriptionPatch): Promise<Subscription>;
  /** `not_found`. Its pending deliveries are cancelled by whoever owns their lane. */
  remove(tenant_id: string, id: string): Promise<void>;
  /** `not_found`. The old secrets go on signing for `overlap_seconds`. */
  rotateSecret(
    tenant_id: string,
    id: string,
    overlap_seconds: number,
  ): Promise<{ subscription: Subscription; secret: string }>;
}

const settingParameters = (settings: SubscriptionSettings): unknown[] => [
  settings.name,
  settings.kind,
  settings.enabled,
  JSON.stringify(settings.destination),
  settings.event_types,
  settings.schema_major,
  settings.origin,
  settings.format,
  settings.ordering,
  settings.hold_seconds,
  settings.max_in_flight,
  settings.retry_schedule_seconds,
  settings.verification_method,
];

const insert_sql = /* sql */ `
insert into subscriptions (id, tenant_id, lane_id, name, kind, enabled, destination, event_types, schema_major, origin,
  format, ordering, hold_seconds, max_in_flight, retry_schedule_seconds, verification_method)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
returning ${subscriptionColumns}`;

// Switching on, passing a probe and deleting bring parked deliveries back: the table's trigger does it
// in this same transaction, because the hub's own changes need it too.
const update_sql = /* sql */ `
update subscriptions set lane_id = $3, verification_state = $4, verification_reason = $5, disabled_reason = $6,
  name = $7, kind = $8, enabled = $9, destination = $10, event_types = $11, schema_major = $12, origin = $13,
  format = $14, ordering = $15, hold_seconds = $16, max_in_flight = $17, retry_schedule_seconds = $18,
  verification_method = $19
where id = $1 and tenant_id = $2
returning ${subscriptionColumns}`;

export function createSubscriptionStore({
  pool,
  guard,
  secrets,
}: SubscriptionStoreParts): SubscriptionStore {
  return {
    async create(tenant_id, given) {
      const settings = completeSettings(given);
      checkSettings(settings, guard);
      const id = uuidv7();
      const owner = { tenant_id, subscription_id: id };
      const secret = await secrets.prepare(owner);
      const address = canonicalAddress(settings.kind, settings.destination);
      const subscription = await tenantTransaction(pool, tenant_id, async (client) => {
        await refuseTooMany(client, tenant_id);
        const lane_id = await laneFor(client, { tenant_id, kind: settings.kind, address });
        const made = await one(client, insert_sql, [
          id,
          tenant_id,
          lane_id,
          ...settingParameters(settings),
        ]);
        await secrets.insertFirst(client, owner, secret);
        return made;
      });
      return { subscription, secret: secret.plain };
    },

    async list(tenant_id, { after_id, limit }) {
      const found = await pool.query<SubscriptionRow>(
        /* sql */ `
        select ${subscriptionColumns} from subscriptions
        where tenant_id = $1 and deleted_at is null and ($2::uuid is null or id > $2) order by id limit $3`,
        [tenant_id, after_id, limit],
      );
      return found.rows.map(subscriptionOf);
    },

    get: (tenant_id, id) => readOne(pool, tenant_id, id, ''),

    change(tenant_id, id, patch) {
      return tenantTransaction(pool, tenant_id, async (client) => {
        const current = await readOne(client, tenant_id, id, 'for update');
        const next = changeSettings(current, patch);
        checkSettings(next, guard);
        if (!('enabled' in patch) && same(next, settingsOf(current))) return current;
        return one(client, update_sql, [
          id,
          tenant_id,
          ...(await consequences(client, current, next, patch)),
          ...settingParameters(next),
        ]);
      });
    },

    async remove(tenant_id, id) {
      await tenantTransaction(pool, tenant_id, async (client) => {
        await readOne(client, tenant_id, id, 'for update');
        await client.query('delete from secrets where subscription_id = $1', [id]);
        await client.query('update subscriptions set deleted_at = now() where id = $1', [id]);
      });
    },

    async rotateSecret(tenant_id, id, overlap_seconds) {
      const owner = { tenant_id, subscription_id: id };
      await readOne(pool, tenant_id, id, '');
      const secret = await secrets.prepare(owner);
      const subscription = await tenantTransaction(pool, tenant_id, async (client) => {
        await readOne(client, tenant_id, id, 'for update');
        await secrets.insertNext(client, owner, secret, overlap_seconds);
        // Raises the version, so that every process signs with it from its next attempt on.
        return one(
          client,
          /* sql */ `update subscriptions set updated_at = now() where id = $1 returning ${subscriptionColumns}`,
          [id],
        );
      });
      return { subscription, secret: secret.plain };
    },
  };
}

/** Lane, verification state and reason, and disabled reason after a change. */
async function consequences(
  client: pg.ClientBase,
  current: Subscription,
  next: SubscriptionSettings,
  patch: SubscriptionPatch,
): Promise<[number, Subscription['verification_state'], string | null, string | null]> {
  const address = canonicalAddress(next.kind, next.destination);
  const moved = address !== canonicalAddress(current.kind, current.destination);
  const lane_id = moved
    ? await laneAfterMove(client, current, {
        tenant_id: current.tenant_id,
        kind: next.kind,
        address,
      })
    : current.lane_id;
  // What failed before may pass with other headers or by the other method, so it is probed again.
  const repaired =
    current.verification_state === 'failed' &&
    (!same(next.destination, current.destination) ||
      next.verification_method !== current.verification_method);
  const probe = moved || repaired;
  return [
    lane_id,
    probe ? 'pending' : current.verification_state,
    probe ? null : current.verification_reason,
    // The owner's switch is stronger than the hub's: it takes the hub's reason away.
    patch.enabled === undefined ? current.disabled_reason : null,
  ];
}

/** @throws HubError `conflict` */
async function refuseTooMany(client: pg.ClientBase, tenant_id: string): Promise<void> {
  const found = await client.query<{ live: number }>(
    /* sql */ `
    select count(*)::integer as live from (
      select 1 from subscriptions where tenant_id = $1 and deleted_at is null limit $2) s`,
    [tenant_id, tenantSubscriptions_max],
  );
  if ((found.rows[0]?.live ?? 0) < tenantSubscriptions_max) return;
  const message = `A tenant has at most ${tenantSubscriptions_max} subscriptions; delete one first.`;
  throw new HubError('conflict', message);
}

function same(a: object, b: object): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

async function one(client: pg.ClientBase, text: string, values: unknown[]): Promise<Subscription> {
  const found = await client.query<SubscriptionRow>(text, values);
  const row = found.rows[0];
  if (!row) throw new Error('the statement returned no subscription');
  return subscriptionOf(row);
}

async function readOne(
  client: pg.Pool | pg.ClientBase,
  tenant_id: string,
  id: string,
  lock: '' | 'for update',
): Promise<Subscription> {
  const missing = new HubError('not_found', 'There is no subscription with this id.');
  if (!isUuid(id)) throw missing;
  const found = await client.query<SubscriptionRow>(
    /* sql */ `
    select ${subscriptionColumns} from subscriptions where id = $1 and tenant_id = $2 and deleted_at is null ${lock}`,
    [id, tenant_id],
  );
  const row = found.rows[0];
  if (!row) throw missing;
  return subscriptionOf(row);
}
