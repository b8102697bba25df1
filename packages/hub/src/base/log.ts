import { type DestinationStream, type Logger, pino } from 'pino';

export type { Logger } from 'pino';

/** Keys that never reach a log, wherever they stand in the first levels of what is logged. */
const secretKeys = [
  'authorization',
  'cookie',
  'password',
  'secret',
  'secrets',
  'api_key',
  'dsn',
  'connectionString',
  'kek',
  'keks',
  'key',
  'wrapped',
  'sealed',
];

const redactedPaths = ['', '*.', '*.*.', '*.*.*.'].flatMap((prefix) =>
  secretKeys.map((key) => prefix + key),
);

export interface LogOptions {
  /** pino's levels, or `silent`. */
  readonly level: string;
  /** Fields of every line, such as the version and the process's id. */
  readonly fields?: Readonly<Record<string, unknown>>;
  /** Default: standard output. */
  readonly destination?: DestinationStream;
}

/** One JSON object per line; times are RFC 3339 in UTC; secrets are replaced by `[redacted]`. */
export function createLog(options: LogOptions): Logger {
  const settings = {
    level: options.level,
    base: options.fields ?? null,
    timestamp: pino.stdTimeFunctions.isoTime,
    redact: { paths: redactedPaths, censor: '[redacted]' },
    formatters: { level: (label: string) => ({ level: label }) },
  };
  return options.destination ? pino(settings, options.destination) : pino(settings);
}
