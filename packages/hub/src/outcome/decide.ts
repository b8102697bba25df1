import { retryDelay_seconds } from '@streaming-hub/contract';
import type { AttemptResult } from '../attempt/index.ts';

/**
 * What follows from one attempt. Decided once, here, for every kind of destination.
 *
 *   delivered    2xx: the delivery is over.
 *   retry        scheduled again. A receiver's failure uses up one step of the schedule; a failure
 *                of the hub's own does not. `Retry-After` moves only the due time.
 *   dead_letter  the schedule is used up, or the receiver said that it is gone (410).
 */
export type Decision =
  | { readonly kind: 'delivered' }
  | {
      readonly kind: 'retry';
      readonly due_ms: number;
      readonly attempts: number;
      readonly reason: string;
    }
  | { readonly kind: 'dead_letter'; readonly reason: 'exhausted' | 'gone' };

/** Wait before trying again after a failure of the hub's own, jittered: 1 s to 10 s. */
const ownFailureDelay_ms = { least: 1_000, most: 10_000 };

export interface DecideInput {
  readonly result: AttemptResult;
  /** Attempts that counted before this one, in this life of the delivery. */
  readonly attempts: number;
  /** Steps in seconds; the first one precedes the first attempt. */
  readonly schedule_seconds: readonly number[];
  readonly now_ms: number;
  /** Uniform in [0, 1). */
  readonly random: () => number;
}

export function decide(input: DecideInput): Decision {
  const { result, now_ms, random } = input;
  if (result.outcome === 'delivered') return { kind: 'delivered' };
  if (result.outcome === 'gone') return { kind: 'dead_letter', reason: 'gone' };
  const reason = result.error?.code ?? 'failed';
  if (result.blame === 'hub') {
    const { least, most } = ownFailureDelay_ms;
    return {
      kind: 'retry',
      due_ms: now_ms + least + random() * (most - least),
      attempts: input.attempts,
      reason,
    };
  }
  const attempts = input.attempts + 1;
  const step_seconds = retryDelay_seconds(input.schedule_seconds, attempts, random);
  if (step_seconds === null) return { kind: 'dead_letter', reason: 'exhausted' };
  const delay_seconds = Math.max(step_seconds, result.retry_after_seconds ?? 0);
  return { kind: 'retry', due_ms: now_ms + delay_seconds * 1000, attempts, reason };
}
