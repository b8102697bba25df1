import { checkRetrySchedule } from '@streaming-hub/contract';
import type { AttemptResult } from '../attempt/index.ts';
import type { AttemptRecord, Change } from '../outcome/index.ts';
import type { Delivery } from './model.ts';

/** What the sender hands to the recorder, made from deliveries and results. */

export const endings: Readonly<Record<string, string>> = {
  subscription_deleted: 'The subscription was deleted before this event was delivered.',
  event_expired: 'The event was dropped by retention before it was delivered.',
  poison:
    'Trying this delivery stopped the hub repeatedly; it is set aside. Redrive it once the cause is known.',
};

export function identity(delivery: Delivery) {
  return {
    lane_id: delivery.lane.id,
    seq: delivery.seq,
    subscription_number: delivery.subscription_number,
    tenant_id: delivery.lane.tenant_id,
  };
}

export function changeOf(
  delivery: Delivery,
  action: Change['action'],
  parts: Partial<Change>,
): Change {
  return {
    ...identity(delivery),
    action,
    ce_id: delivery.event?.id ?? '00000000-0000-0000-0000-000000000000',
    shard: delivery.lane.shard,
    token: delivery.lane.token,
    attempts: delivery.attempts,
    attempts_before: delivery.attempts_before,
    due_ms: null,
    first_failed_ms: delivery.first_failed_ms,
    reason: null,
    replay_id: delivery.replay_id,
    last_status: null,
    last_error: null,
    suspect: delivery.crashes > 0,
    attempt: null,
    ...parts,
  };
}

export function last(result: AttemptResult) {
  return { last_status: result.status, last_error: result.error?.message ?? null };
}

export function attemptRecord(
  delivery: Delivery,
  result: AttemptResult,
  id: string,
  started_ms: number,
): AttemptRecord {
  const microseconds = (value_ms: number | null) =>
    value_ms === null ? null : Math.round(value_ms * 1000);
  return {
    attempt: delivery.attempts_before + delivery.attempts + 1,
    delivery_attempt_id: id,
    started_ms,
    duration_us: Math.round(result.timings.total_ms * 1000),
    outcome: result.outcome,
    status: result.status,
    error_code: result.error?.code ?? null,
    error_message: result.error?.message ?? null,
    response_excerpt: result.response_excerpt,
    dns_us: microseconds(result.timings.dns_ms),
    connect_us: microseconds(result.timings.connect_ms),
    tls_us: microseconds(result.timings.tls_ms),
    first_byte_us: microseconds(result.timings.first_byte_ms),
  };
}

/** A malformed override found in storage falls back to the hub's default. */
export function usableSchedule(schedule: readonly number[] | null): readonly number[] | null {
  const checked = checkRetrySchedule(schedule);
  return checked.ok ? checked.schedule : null;
}
