const units_ms: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };
const shape = /^(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h))+$/;
const part = /([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)/g;

/**
 * Milliseconds in a duration such as `250ms`, `5s`, `5m`, `2h` or `1h30m`. A bare number counts in
 * `bare_unit_ms`. Null when the text is no duration or too large to be exact.
 */
export function parseDuration_ms(text: string, bare_unit_ms: number): number | null {
  const trimmed = text.trim();
  let total = 0;
  if (/^[0-9]+(?:\.[0-9]+)?$/.test(trimmed)) total = Number(trimmed) * bare_unit_ms;
  else if (!shape.test(trimmed)) return null;
  else {
    for (const [, count, unit] of trimmed.matchAll(part)) {
      total += Number(count) * (units_ms[unit as string] as number);
    }
  }
  const rounded = Math.round(total);
  return Number.isSafeInteger(rounded) ? rounded : null;
}
