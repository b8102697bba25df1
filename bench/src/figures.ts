/** One line of the report; the shape that readers of the JSON file rely on. */
export interface Result {
  readonly id: string;
  readonly figures: Readonly<Record<string, number | string>>;
  readonly ratios: Readonly<Record<string, number>>;
  readonly bar: string;
  readonly met: boolean;
}

export function percentile(sorted: readonly number[], share: number): number {
  if (sorted.length === 0) return Number.NaN;
  return sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * share) - 1)] as number;
}

export function percentiles(values: readonly number[]): { p50: number; p95: number; p99: number } {
  const sorted = values.toSorted((a, b) => a - b);
  return {
    p50: percentile(sorted, 0.5),
    p95: percentile(sorted, 0.95),
    p99: percentile(sorted, 0.99),
  };
}

/** The middle one of a few repetitions. */
export function median(values: readonly number[]): number {
  return percentile(
    values.toSorted((a, b) => a - b),
    0.5,
  );
}

export function round(value: number, digits = 2): number {
  return Number(value.toFixed(digits));
}
