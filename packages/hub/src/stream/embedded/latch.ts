/** A loop waits on it; whoever has something for the loop opens it. An opening is never lost. */
export interface Latch {
  open(): void;
  /** Resolves at once when opened since the last pass, else at the next opening, after `timeout_ms` or when the signal aborts. */
  pass(timeout_ms: number, signal: AbortSignal): Promise<void>;
}

export function createLatch(): Latch {
  let opened = false;
  let wake: () => void = () => {};
  return {
    open() {
      opened = true;
      wake();
    },
    async pass(timeout_ms, signal) {
      if (!opened && !signal.aborted && timeout_ms > 0) {
        let timer: NodeJS.Timeout | undefined;
        await new Promise<void>((resolve) => {
          wake = resolve;
          timer = setTimeout(resolve, timeout_ms);
          signal.addEventListener('abort', wake, { once: true });
        });
        clearTimeout(timer);
        signal.removeEventListener('abort', wake);
      }
      opened = false;
    },
  };
}
