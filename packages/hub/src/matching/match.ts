import { matchesEventType, semverMajor } from '@streaming-hub/contract';
import type { StoredEvent } from '../inbox/index.ts';
import type { Subscription } from '../subscriptions/index.ts';

/** Why a subscription of the event's tenant did not get it. */
export type MismatchReason =
  | 'event_type'
  | 'schema_major'
  | 'origin'
  | 'created_later'
  | 'disabled'
  | 'unverified';

export type MatchExplanation =
  | { readonly matched: true }
  | { readonly matched: false; readonly reason: MismatchReason; readonly detail: string };

export type MatchedEvent = Pick<StoredEvent, 'sequence' | 'origin' | 'event_type' | 'attributes'>;
export type MatchedSubscription = Pick<
  Subscription,
  | 'event_types'
  | 'schema_major'
  | 'origin'
  | 'enabled'
  | 'verification_state'
  | 'created_at'
  | 'deleted'
>;

/**
 * The rule that ingest applies in SQL (migration 0003), for one event and one subscription of the
 * same tenant, by the subscription as it is now. What the subscription asks for comes first, then
 * whether it was there, then the switches.
 */
export function explainMatch(
  event: MatchedEvent,
  subscription: MatchedSubscription,
): MatchExplanation {
  const { event_type } = event;
  if (!subscription.event_types.some((pattern) => matchesEventType(pattern, event_type))) {
    return mismatch(
      'event_type',
      `it wants ${subscription.event_types.join(', ')}, the event is ${event_type}`,
    );
  }
  const major = semverMajor(event.attributes['schemaversion'] ?? '');
  if (subscription.schema_major !== null && subscription.schema_major !== major) {
    return mismatch(
      'schema_major',
      `it wants schema major ${subscription.schema_major}, the event has ${major}`,
    );
  }
  if (subscription.origin !== null && subscription.origin !== event.origin) {
    return mismatch(
      'origin',
      `it wants events from ${subscription.origin}, this one is from ${event.origin}`,
    );
  }
  if (subscription.created_at.getTime() * 1000 > event.sequence) {
    return mismatch(
      'created_later',
      `it was created at ${subscription.created_at.toISOString()}, after the event arrived`,
    );
  }
  if (!subscription.enabled || subscription.deleted) {
    return mismatch('disabled', subscription.deleted ? 'it has been deleted' : 'it is disabled');
  }
  if (subscription.verification_state !== 'active') {
    return mismatch('unverified', `its verification is ${subscription.verification_state}`);
  }
  return { matched: true };
}

function mismatch(reason: MismatchReason, detail: string): MatchExplanation {
  return { matched: false, reason, detail };
}
