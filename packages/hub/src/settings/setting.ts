import { parseDuration_ms } from '@streaming-hub/contract';

/** Kinds of environment the hub knows; each is stricter than the one before. */
export type HubEnvironment = 'local' | 'staging' | 'production';
/** Which background work a process does. Every role serves the whole HTTP surface. */
export type HubRole = 'all' | 'ingest' | 'delivery';

/** What a default may depend on. Read before everything else. */
export interface Basis {
  readonly env: HubEnvironment;
  readonly role: HubRole;
}

export type Parsed<T> =
  | { readonly ok: true; readonly value: T }
  | { readonly ok: false; readonly expected: string };

/** One declared environment variable. `T` is the type it has in `Settings`. */
export interface Setting<T> {
  readonly name: string;
  /** What may be written, in words: "one of local, staging, production". */
  readonly accepts: string;
  readonly description: string;
  /** Never printed, never logged. */
  readonly secret: boolean;
  /** Understood and checked, but nothing acts on it yet. */
  readonly planned: boolean;
  defaultFor(basis: Basis): T;
  /** The default as the reference page shows it. */
  readonly defaultText: string;
  /** `expected` completes the sentence "X must be …". */
  parse(text: string): Parsed<T>;
  /** The value as one would write it into the variable. */
  format(value: T): string;
}

/** A default that depends on the environment or the role, with the words for the reference page. */
export class Depends<T> {
  readonly of: (basis: Basis) => T;
  readonly text: string;
  constructor(of: (basis: Basis) => T, text: string) {
    this.of = of;
    this.text = text;
  }
}

export function localElse<T>(local: T, otherwise: T, format: (value: T) => string): Depends<T> {
  return new Depends(
    ({ env }) => (env === 'local' ? local : otherwise),
    `\`${format(local)}\` in local, else \`${format(otherwise)}\``,
  );
}

export function byRole(all: number, ingest: number, delivery: number): Depends<number> {
  const values = { all, ingest, delivery };
  return new Depends(
    ({ role }) => values[role],
    `by role: all ${all}, ingest ${ingest}, delivery ${delivery}`,
  );
}

interface Options<T> {
  readonly default: T | Depends<T>;
  readonly description: string;
  readonly secret?: boolean;
  readonly planned?: boolean;
}

interface Grammar<T> {
  readonly accepts: string;
  parse(text: string): Parsed<T>;
  format(value: T): string;
}

/** Names are written without their common prefix in the table. */
export const settingPrefix = 'STREAMING_HUB_';

function declare<T>(name: string, options: Options<T>, grammar: Grammar<T>): Setting<T> {
  const given = options.default;
  const constant = given instanceof Depends ? null : grammar.format(given);
  return {
    ...grammar,
    name: settingPrefix + name,
    description: options.description,
    secret: options.secret ?? false,
    planned: options.planned ?? false,
    defaultFor: (basis) => (given instanceof Depends ? given.of(basis) : given),
    defaultText:
      given instanceof Depends ? given.text : constant === '' ? 'empty' : `\`${constant}\``,
  };
}

const refuse = <T>(expected: string): Parsed<T> => ({ ok: false, expected });
const accept = <T>(value: T): Parsed<T> => ({ ok: true, value });

/** Free text without control characters; null when unset. `pattern` narrows it and `accepts` says how. */
export function text(
  name: string,
  options: Options<string | null> & { accepts?: string; pattern?: RegExp },
): Setting<string | null> {
  const accepts = options.accepts ?? 'text';
  const pattern = options.pattern ?? /^[^\p{Cc}]+$/u;
  return declare(name, options, {
    accepts,
    parse: (given) => (pattern.test(given) ? accept(given) : refuse(accepts)),
    format: (value) => value ?? '',
  });
}

/** Text that always has a value. */
export function word(
  name: string,
  options: Options<string> & { accepts: string; pattern: RegExp },
): Setting<string> {
  return declare(name, options, {
    accepts: options.accepts,
    parse: (given) => (options.pattern.test(given) ? accept(given) : refuse(options.accepts)),
    format: (value) => value,
  });
}

export function choice<const T extends string>(
  name: string,
  values: readonly T[],
  options: Options<NoInfer<T>>,
): Setting<T> {
  const accepts = `one of ${values.join(', ')}`;
  return declare<T>(name, options, {
    accepts,
    parse: (given) => {
      const found = values.find((value) => value === given);
      return found === undefined ? refuse(accepts) : accept(found);
    },
    format: (value) => value,
  });
}

export function flag(name: string, options: Options<boolean>): Setting<boolean> {
  const accepts = 'true or false';
  return declare(name, options, {
    accepts,
    parse: (given) =>
      given === 'true' ? accept(true) : given === 'false' ? accept(false) : refuse(accepts),
    format: String,
  });
}

/** A whole number within bounds, both included. */
export function whole(
  name: string,
  options: Options<number> & { min: number; max: number },
): Setting<number> {
  const accepts = `a whole number from ${options.min} to ${options.max}`;
  return declare(name, options, {
    accepts,
    parse: (given) => {
      const value = /^\d{1,15}$/.test(given) ? Number(given) : Number.NaN;
      return value >= options.min && value <= options.max ? accept(value) : refuse(accepts);
    },
    format: String,
  });
}

/** A share: more than 0, at most 1. */
export function ratio(name: string, options: Options<number>): Setting<number> {
  const accepts = 'a number above 0 and at most 1, such as 0.5';
  return declare(name, options, {
    accepts,
    parse: (given) => {
      const value = /^\d(\.\d{1,6})?$/.test(given) ? Number(given) : Number.NaN;
      return value > 0 && value <= 1 ? accept(value) : refuse(accepts);
    },
    format: String,
  });
}

/** Comma-separated; blanks around members are dropped. */
export function list(
  name: string,
  options: Options<readonly string[]> & { accepts: string; pattern: RegExp; count_max: number },
): Setting<readonly string[]> {
  return declare(name, options, {
    accepts: options.accepts,
    parse: (given) => {
      const members = given.split(',').map((member) => member.trim());
      if (members.length > options.count_max) return refuse(`at most ${options.count_max} members`);
      return members.every((member) => options.pattern.test(member))
        ? accept(members)
        : refuse(options.accepts);
    },
    format: (value) => value.join(','),
  });
}

const day_ms = 86_400_000;

/** Written the way it is read: 1500 → "1500ms", 300000 → "5m". */
export function formatDuration(duration_ms: number): string {
  if (duration_ms === 0) return '0s';
  const units = [
    ['h', 3_600_000],
    ['m', 60_000],
    ['s', 1_000],
  ] as const;
  for (const [unit, unit_ms] of units) {
    if (duration_ms % unit_ms === 0) return `${duration_ms / unit_ms}${unit}`;
  }
  return `${duration_ms}ms`;
}

/**
 * A duration in milliseconds. `bare_unit_ms` is what a bare number means where operators already
 * write one; elsewhere a bare number other than 0 is refused, because guessing its unit would be
 * worse than asking.
 */
export function duration(
  name: string,
  options: Options<number> & { bare_unit_ms?: number; min_ms?: number; max_ms?: number },
): Setting<number> {
  const min_ms = options.min_ms ?? 0;
  const max_ms = options.max_ms ?? 400 * day_ms;
  const bare_unit_ms = options.bare_unit_ms;
  const bare =
    bare_unit_ms === undefined ? '' : ` (a bare number counts ${bareUnit(bare_unit_ms)})`;
  const accepts = `a duration such as 250ms, 5s, 5m or 2h, from ${formatDuration(min_ms)} to ${formatDuration(max_ms)}${bare}`;
  return declare(name, options, {
    accepts,
    parse: (given) => {
      if (bare_unit_ms === undefined && /^[\d.]+$/.test(given) && Number(given) !== 0) {
        return refuse(`a duration with its unit, such as ${given}s or ${given}ms`);
      }
      const value = parseDuration_ms(given, bare_unit_ms ?? 1);
      return value !== null && value >= min_ms && value <= max_ms ? accept(value) : refuse(accepts);
    },
    format: formatDuration,
  });
}

function bareUnit(unit_ms: number): string {
  return unit_ms === 1 ? 'milliseconds' : 'seconds';
}

/** For the few settings with a grammar of their own. */
export function custom<T>(name: string, options: Options<T>, grammar: Grammar<T>): Setting<T> {
  return declare(name, options, grammar);
}
