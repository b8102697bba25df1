import type { SubscriptionAnswer } from '@streaming-hub/contract';
import type { Subscription } from './types.ts';

/** The shape the API shows. A time-out that was not set shows the hub's own. */
export function subscriptionView(
  subscription: Subscription,
  timeout_seconds_default: number,
): SubscriptionAnswer {
  const { destination } = subscription;
  return {
    id: subscription.id,
    name: subscription.name,
    kind: subscription.kind,
    enabled: subscription.enabled,
    verification_state: subscription.verification_state,
    verification_reason: subscription.verification_reason,
    verified_at: subscription.verified_at?.toISOString() ?? null,
    destination: {
      url: destination.url,
      headers: { ...destination.headers },
      timeout_seconds: destination.timeout_seconds ?? timeout_seconds_default,
    },
    event_types: [...subscription.event_types],
    schema_major: subscription.schema_major,
    origin: subscription.origin,
    format: subscription.format,
    ordering: subscription.ordering,
    hold_seconds: subscription.hold_seconds,
    max_in_flight: subscription.max_in_flight,
    retry_schedule_seconds: subscription.retry_schedule_seconds && [
      ...subscription.retry_schedule_seconds,
    ],
    verification_method: subscription.verification_method,
    disabled_reason: subscription.disabled_reason,
    created_at: subscription.created_at.toISOString(),
    updated_at: subscription.updated_at.toISOString(),
  };
}
