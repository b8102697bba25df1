const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

export interface StopRequest {
  readonly signal: AbortSignal;
  /** Signals do what they always do again. */
  dispose(): void;
}

/** Aborts on Ctrl-C and its like, and when nobody reads the output any more; repeats change nothing. */
export function listenForStop(out: NodeJS.WriteStream): StopRequest {
  const controller = new AbortController();
  const abort = () => controller.abort();
  for (const signal of signals) process.on(signal, abort);
  out.on('error', abort);
  return {
    signal: controller.signal,
    dispose() {
      for (const signal of signals) process.off(signal, abort);
    },
  };
}
