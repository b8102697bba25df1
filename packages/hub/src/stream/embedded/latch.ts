import { wait } from '../../base/index.ts';

/** A loop waits on it; whoever has something for the loop opens it. An opening is never lost. */
export interface Latch {
  open(): void;
  /** Resolves at once when opened since the last pass, else at the next opening, after `timeout_ms` or when the signal aborts. */
  pass(timeout_ms: number, signal: AbortSignal): Promise<void>;
}

export function createLatch(): Latch {
  let opened = false;
  let waiting: AbortController | undefined;
  return {
    open() {
      opened = true;
      waiting?.abort();
    },
    async pass(timeout_ms, signal) {
      if (!opened && !signal.aborted && timeout_ms > 0) {
        waiting = new AbortController();
        await wait(timeout_ms, AbortSignal.any([waiting.signal, signal]));
        waiting = undefined;
      }
      opened = false;
    },
  };
}
