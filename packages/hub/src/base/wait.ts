/** Resolves after `duration_ms`, or at once when the signal aborts. Never rejects. */
export function wait(duration_ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', finish);
      resolve();
    };
    const timer = setTimeout(finish, duration_ms);
    signal?.addEventListener('abort', finish, { once: true });
  });
}

/** Exponential back-off with full jitter, in milliseconds: uniform in [base/2, min(base·2^failures, max)]. */
export function backoff_ms(
  failures: number,
  base_ms: number,
  max_ms: number,
  random = Math.random,
): number {
  const ceiling = Math.min(base_ms * 2 ** Math.min(failures, 20), max_ms);
  return base_ms / 2 + random() * Math.max(0, ceiling - base_ms / 2);
}
