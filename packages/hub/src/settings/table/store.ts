import { byRole, duration, flag, text, whole } from '../setting.ts';

const hour_ms = 3_600_000;

/** Postgres and how long things are kept there. */
export const storeSettings = {
  postgresDsn: text('POSTGRES_DSN', {
    default: null,
    secret: true,
    accepts:
      'a connection string such as postgres://user:password@host:5432/database?sslmode=verify-full',
    pattern: /^postgres(ql)?:\/\/[^\s\p{Cc}]+$/u,
    description: 'Postgres to use. Empty: an embedded one in `DATA_DIR` (local only).',
  }),
  postgresMaxOpenConns: whole('POSTGRES_MAX_OPEN_CONNS', {
    default: byRole(25, 8, 16),
    min: 4,
    max: 1_000,
    description:
      'Most connections of this process. The sum over all processes must fit `max_connections`.',
  }),
  postgresMaxIdleConns: whole('POSTGRES_MAX_IDLE_CONNS', {
    default: byRole(12, 4, 10),
    min: 0,
    max: 1_000,
    description: 'Connections kept open while idle.',
  }),
  postgresConnMaxLifetime_ms: duration('POSTGRES_CONN_MAX_LIFETIME', {
    default: hour_ms / 2,
    min_ms: 1_000,
    description: 'A connection older than this is replaced.',
  }),
  allowInsecureDbTls: flag('ALLOW_INSECURE_DB_TLS', {
    default: false,
    description:
      'Says that Postgres over a network without TLS is meant. Production refuses `true`.',
  }),
  partitionCronInterval_ms: duration('PARTITION_CRON_INTERVAL', {
    default: 6 * hour_ms,
    min_ms: 1_000,
    description: 'How often partitions are made ahead and, when enabled, dropped behind.',
  }),
  partitionFutureBufferWeeks: whole('PARTITION_FUTURE_BUFFER_WEEKS', {
    default: 4,
    min: 1,
    max: 52,
    description: 'Weeks for which partitions exist ahead of time.',
  }),
  partitionRetentionEnabled: flag('PARTITION_RETENTION_ENABLED', {
    planned: true,
    default: false,
    description: 'Drops partitions older than the horizon.',
  }),
  partitionRetentionHorizon_ms: duration('PARTITION_RETENTION_HORIZON', {
    planned: true,
    default: 0,
    max_ms: 10 * 366 * 24 * hour_ms,
    description:
      'How long events and deliveries are kept, at least a week; needed when retention is enabled.',
  }),
} as const;
