/** One condition without which this process should get no traffic. */
export interface ReadinessCheck {
  /** Shown to everybody, such as `database` or `stream`. */
  readonly name: string;
  /** Resolves when all is well, throws when not. Gets aborted when it takes too long. */
  readonly check: (signal: AbortSignal) => Promise<void>;
}

export interface ReadinessReport {
  readonly status: 'ready' | 'draining' | 'unavailable';
  readonly checks: readonly { readonly name: string; readonly ok: boolean }[];
}

export interface Readiness {
  report(): Promise<ReadinessReport>;
  /** From now on "draining", whatever the checks say. */
  drain(): void;
}

/** Shorter than the time-outs of the usual probes (5 s). */
const checkTimeout_ms = 2_000;

/** `onFault` hears why a check failed; the report itself names only the check. */
export function createReadiness(
  checks: readonly ReadinessCheck[],
  onFault: (name: string, fault: unknown) => void,
): Readiness {
  let draining = false;
  const run = async ({ name, check }: ReadinessCheck) => {
    const signal = AbortSignal.timeout(checkTimeout_ms);
    try {
      await Promise.race([check(signal), rejectWhenAborted(signal)]);
      return { name, ok: true };
    } catch (fault) {
      onFault(name, fault);
      return { name, ok: false };
    }
  };
  return {
    async report() {
      const results = await Promise.all(checks.map(run));
      const healthy = results.every((result) => result.ok);
      return { status: draining ? 'draining' : healthy ? 'ready' : 'unavailable', checks: results };
    },
    drain() {
      draining = true;
    },
  };
}

function rejectWhenAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    signal.addEventListener('abort', () => reject(new Error('the check took too long')), {
      once: true,
    });
  });
}
