import { type DeliveryAnswer, type DeliveryState, encodeDeliveryId } from '@streaming-hub/contract';
import type { DeliveryKey } from './types.ts';

/** What the tables say about one delivery; every part but the first may be missing. */
export interface DeliveryFacts extends DeliveryKey {
  readonly ce_id: string;
  readonly subscription_id: string;
  readonly attempts: number;
  readonly delivered_at: Date | null;
  readonly cancelled_at: Date | null;
  readonly cancel_reason: string | null;
  readonly dead_at: Date | null;
  readonly dead_reason: string | null;
  readonly redriven_at: Date | null;
  readonly retry_state: 'scheduled' | 'parked' | null;
  readonly retry_reason: string | null;
  readonly due_at: Date | null;
}

/**
 * The state of a delivery is not stored; it follows from what was recorded, first match wins:
 *   delivered    a try succeeded (also one by an owner that had been replaced meanwhile)
 *   dead_letter  its schedule was used up and nobody has redriven it since
 *   parked       its subscription is switched off
 *   cancelled    its subscription was deleted
 *   pending      anything else: never tried, or a retry is scheduled
 */
export function deliveryState(facts: DeliveryFacts): DeliveryState {
  if (facts.delivered_at) return 'delivered';
  if (facts.dead_at && !facts.redriven_at) return 'dead_letter';
  if (facts.retry_state === 'parked') return 'parked';
  if (facts.cancelled_at) return 'cancelled';
  return 'pending';
}

const microsecondsPerMillisecond = 1_000;

/** The sequence is the time of arrival in microseconds. */
export function timeOfSequence(seq: number): Date {
  return new Date(Math.floor(seq / microsecondsPerMillisecond));
}

export function toDeliveryView(facts: DeliveryFacts): DeliveryAnswer {
  const state = deliveryState(facts);
  return {
    id: encodeDeliveryId(facts),
    event_id: facts.ce_id,
    subscription_id: facts.subscription_id,
    state,
    reason: reasonOf(facts, state),
    attempts: facts.attempts,
    next_attempt_at:
      state === 'pending' && facts.due_at !== null ? facts.due_at.toISOString() : null,
    created_at: timeOfSequence(facts.seq).toISOString(),
    finished_at: finishedAt(facts, state)?.toISOString() ?? null,
  };
}

function reasonOf(facts: DeliveryFacts, state: DeliveryState): string | null {
  switch (state) {
    case 'delivered':
      return null;
    case 'dead_letter':
      return facts.dead_reason;
    case 'cancelled':
      return facts.cancel_reason;
    case 'parked':
    case 'pending':
      return facts.retry_reason;
    default:
      return state satisfies never;
  }
}

function finishedAt(facts: DeliveryFacts, state: DeliveryState): Date | null {
  switch (state) {
    case 'delivered':
      return facts.delivered_at;
    case 'dead_letter':
      return facts.dead_at;
    case 'cancelled':
      return facts.cancelled_at;
    case 'parked':
    case 'pending':
      return null;
    default:
      return state satisfies never;
  }
}
