import type { QueryResultRow } from 'pg';
import type { Subscription } from './types.ts';

/** In the order of the type, for every statement that returns subscriptions. */
export const subscriptionColumns = /* sql */ `
id, number, tenant_id, name, kind, enabled, verification_state, verification_reason, verified_at,
allowed_rate_per_minute, destination, lane_id, event_types, schema_major, origin, format, ordering, hold_seconds,
max_in_flight, retry_schedule_seconds, verification_method, disabled_reason, deleted_at is not null as deleted,
version, created_at, updated_at`;

export interface SubscriptionRow extends QueryResultRow, Omit<Subscription, 'version'> {
  readonly version: string | number;
}

export function subscriptionOf(row: SubscriptionRow): Subscription {
  return { ...row, version: Number(row.version) };
}

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Whether the database can be asked for it; anything else is simply not there. */
export function isUuid(id: string): boolean {
  return uuid.test(id);
}
