import { setTimeout as pause } from 'node:timers/promises';

const poll_ms = 10;
const timeout_ms_default = 20_000;

/**
 * Polls `check` each 10 ms until it gives something truthy, and returns that.
 * After `timeout_ms` it throws what `check` threw last, or that it never came true.
 */
export async function until<T>(
  check: () => T | Promise<T>,
  timeout_ms = timeout_ms_default,
): Promise<NonNullable<T>> {
  const end_ms = performance.now() + timeout_ms;
  for (;;) {
    let cause: unknown;
    try {
      const value = await check();
      if (value) return value;
    } catch (error) {
      cause = error;
    }
    if (performance.now() >= end_ms) {
      const reason = cause instanceof Error ? `: ${cause.message}` : '';
      throw new Error(`not true after ${timeout_ms} ms${reason}`, { cause });
    }
    await pause(poll_ms);
  }
}
