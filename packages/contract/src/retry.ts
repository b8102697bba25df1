import { parseDuration_ms } from './durations.ts';
import { limits } from './limits.ts';

/** Upper bounds of the waits, in seconds: 8 attempts in at most 27.6 h. The first step is the first attempt. */
export const defaultRetrySchedule_seconds: readonly number[] = [
  0, 5, 300, 1800, 7200, 18_000, 36_000, 36_000,
];

export type RetryScheduleCheck =
  | { readonly ok: true; readonly schedule: number[] }
  | { readonly ok: false; readonly message: string };

/** Checks a schedule given in seconds: 1 to 12 numbers, each from 0 to 36 000 (10 h). */
export function checkRetrySchedule(value: unknown): RetryScheduleCheck {
  if (!Array.isArray(value)) {
    return { ok: false, message: 'A retry schedule is a list of waits in seconds.' };
  }
  const steps: readonly unknown[] = value;
  if (steps.length === 0 || steps.length > limits.retry_steps_max) {
    return {
      ok: false,
      message: `A retry schedule has 1 to ${limits.retry_steps_max} steps; this one has ${steps.length}.`,
    };
  }
  const schedule: number[] = [];
  for (const [index, step] of steps.entries()) {
    const fits = typeof step === 'number' && step >= 0 && step <= limits.retry_step_seconds_max;
    if (!fits) {
      return {
        ok: false,
        message: `Step ${index + 1} of the retry schedule must be a number of seconds from 0 to ${limits.retry_step_seconds_max} (10 h).`,
      };
    }
    schedule.push(step);
  }
  return { ok: true, schedule };
}

/** Reads a schedule written as `0s,5s,5m`; bare numbers are seconds. */
export function parseRetrySchedule(text: string): RetryScheduleCheck {
  const steps: number[] = [];
  for (const part of text.split(',')) {
    const wait_ms = parseDuration_ms(part, 1000);
    if (wait_ms === null) {
      return {
        ok: false,
        message: `${JSON.stringify(part.trim())} is not a duration; write for example 0s,5s,5m,2h.`,
      };
    }
    steps.push(wait_ms / 1000);
  }
  return checkRetrySchedule(steps);
}

/**
 * Seconds until the next attempt once `attemptsMade` have failed, drawn uniformly from 0 to the
 * step (full jitter; `random` answers from 0 to below 1). Null when the schedule is exhausted.
 */
export function retryDelay_seconds(
  schedule: readonly number[],
  attemptsMade: number,
  random: () => number,
): number | null {
  const step = schedule[attemptsMade];
  return step === undefined ? null : step * random();
}
