import { isLoopback, parseListenAddress } from './address.ts';
import { SettingsError } from './error.ts';
import { settingsTable } from './table/index.ts';
import type { Settings } from './types.ts';

type Rule = (settings: Settings) => readonly [setting: string, sentence: string] | null;

const name = Object.fromEntries(
  Object.entries(settingsTable).map(([key, setting]) => [key, setting.name]),
) as { readonly [K in keyof typeof settingsTable]: string };

const week_ms = 7 * 86_400_000;

/** What single values cannot tell: combinations with which the hub refuses to start, most telling first. */
const rules: readonly Rule[] = [
  (s) =>
    s.embeddedPostgres && s.env !== 'local'
      ? [
          name.postgresDsn,
          `${name.postgresDsn} is missing: in ${s.env} give the hub a Postgres, or set ${name.env}=local to run the embedded one.`,
        ]
      : null,
  (s) =>
    s.env === 'production' && s.allowInsecureKafka
      ? [
          name.allowInsecureKafka,
          `${name.allowInsecureKafka}=true is refused in production: remove it and set ${name.kafkaTlsEnabled}=true, or set ${name.env}=staging.`,
        ]
      : null,
  (s) =>
    s.env === 'production' && !s.embeddedStream && !s.kafkaTlsEnabled
      ? [
          name.kafkaTlsEnabled,
          `Kafka without TLS is refused in production: set ${name.kafkaTlsEnabled}=true, or ${name.env}=staging or local.`,
        ]
      : null,
  (s) => {
    const parts = [s.kafkaScramMechanism, s.kafkaScramUsername, s.kafkaScramPassword];
    const missing = [
      name.kafkaScramMechanism,
      name.kafkaScramUsername,
      name.kafkaScramPassword,
    ].filter((_, index) => parts[index] === null);
    return missing.length === 0 || missing.length === 3
      ? null
      : [
          missing[0] ?? '',
          `SCRAM needs mechanism, user and password together: set ${missing.join(' and ')}, or remove the others.`,
        ];
  },
  (s) =>
    s.kafkaCaCert !== null && !s.kafkaTlsEnabled
      ? [
          name.kafkaCaCert,
          `${name.kafkaCaCert} does nothing without TLS: set ${name.kafkaTlsEnabled}=true, or remove it.`,
        ]
      : null,
  (s) =>
    s.keks.length === 0 && s.env !== 'local'
      ? [
          name.kekRef,
          `No key-encryption key: put 32 random bytes in base64 into a variable (openssl rand -base64 32) and its name into ${name.kekRef}, because the hub never sends unsigned.`,
        ]
      : null,
  (s) =>
    s.env === 'production' && s.allowPrivateSinks
      ? [
          name.allowPrivateSinks,
          `${name.allowPrivateSinks}=true is refused in production, because tenants could reach your network: remove it, or set ${name.env}=staging.`,
        ]
      : null,
  (s) =>
    s.auth === 'none' && !isLoopback(parseListenAddress(s.httpListenAddr).host)
      ? [
          name.auth,
          `${name.auth}=none works on loopback only: set ${name.auth}=api-key, or let ${name.httpListenAddr} begin with 127.0.0.1.`,
        ]
      : null,
  (s) =>
    s.env === 'production' && s.allowInsecureDbTls
      ? [
          name.allowInsecureDbTls,
          `${name.allowInsecureDbTls}=true is refused in production: remove it and give the DSN sslmode=verify-full, or set ${name.env}=staging.`,
        ]
      : null,
  (s) =>
    s.env === 'production' && s.postgresDsn !== null && crossesNetworkInClear(s.postgresDsn)
      ? [
          name.postgresDsn,
          `Postgres over a network without TLS is refused in production: add sslmode=verify-full (or require) to ${name.postgresDsn}, or set ${name.env}=staging.`,
        ]
      : null,
  (s) =>
    s.postgresMaxIdleConns > s.postgresMaxOpenConns
      ? [
          name.postgresMaxIdleConns,
          `${name.postgresMaxIdleConns} must not exceed ${name.postgresMaxOpenConns} (${s.postgresMaxOpenConns}): lower the first or raise the second.`,
        ]
      : null,
  (s) =>
    s.partitionRetentionEnabled && s.partitionRetentionHorizon_ms < week_ms
      ? [
          name.partitionRetentionHorizon_ms,
          `${name.partitionRetentionHorizon_ms} must be at least 168h when retention is enabled: set it, or set ${name.partitionRetentionEnabled}=false.`,
        ]
      : null,
  (s) =>
    s.tenants.length > 0 && s.contract !== 'v1'
      ? [
          name.tenants,
          `${name.tenants} is a roster for contract v1 only: remove it, or set ${name.contract}=v1.`,
        ]
      : null,
  (s) =>
    s.breakerOpenTime_ms > s.breakerOpenTimeMax_ms
      ? [
          name.breakerOpenTimeMax_ms,
          `${name.breakerOpenTimeMax_ms} must not be below ${name.breakerOpenTime_ms}: raise the first or lower the second.`,
        ]
      : null,
];

/** @throws SettingsError for the first rule that is broken. */
export function checkTogether(settings: Settings): void {
  parseListenAddress(settings.httpListenAddr);
  for (const rule of rules) {
    const broken = rule(settings);
    if (broken) throw new SettingsError(broken[0], broken[1]);
  }
}

/** True when the DSN leaves this machine without asking for TLS. Sockets and loopback never leave it. */
function crossesNetworkInClear(dsn: string): boolean {
  let url: URL;
  try {
    url = new URL(dsn);
  } catch (error) {
    throw new SettingsError(
      name.postgresDsn,
      `${name.postgresDsn} must be a connection string such as postgres://user:password@host:5432/database; its value is not shown.`,
      { cause: error },
    );
  }
  const host = (url.searchParams.get('host') ?? url.hostname).replace(/^\[|\]$/g, '');
  if (host === '' || host.startsWith('/') || host.startsWith('%2F') || isLoopback(host))
    return false;
  return !['require', 'verify-ca', 'verify-full'].includes(url.searchParams.get('sslmode') ?? '');
}
