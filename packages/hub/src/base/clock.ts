/** Time and randomness as arguments, so that rules can be tested without waiting. */
export interface Clock {
  /** Wall clock, milliseconds since the Unix epoch. */
  now_ms(): number;
  /** Monotonic, milliseconds from an arbitrary origin; only differences mean anything. */
  monotonic_ms(): number;
}

export const systemClock: Clock = {
  now_ms: () => Date.now(),
  monotonic_ms: () => performance.now(),
};

/** Uniform in [0, 1). */
export type Random = () => number;
