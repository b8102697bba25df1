/** Calls `send` at a constant rate, whatever the earlier calls are doing; resolves when all have ended. */
export async function pace(
  count: number,
  per_second: number,
  send: (n: number) => Promise<void>,
): Promise<void> {
  const running: Promise<void>[] = [];
  const started_ms = performance.now();
  for (let n = 0; n < count; ) {
    const due = Math.min(
      count,
      Math.floor(((performance.now() - started_ms) / 1000) * per_second) + 1,
    );
    for (; n < due; n += 1) running.push(send(n));
    const next_ms = started_ms + (n / per_second) * 1000;
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, next_ms - performance.now())));
  }
  await Promise.all(running);
}
