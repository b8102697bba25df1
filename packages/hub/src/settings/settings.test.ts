import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import {
  describeSettings,
  readSettings,
  SettingsError,
  settingsReference,
  settingsTable,
  settingsWithoutEffect,
} from './index.ts';

const kek = randomBytes(32).toString('base64');
const production = {
  STREAMING_HUB_POSTGRES_DSN: 'postgres://hub:s3cret@db.example:5432/hub?sslmode=verify-full',
  STREAMING_HUB_KAFKA_BROKERS: 'kafka-1:9093, kafka-2:9093',
  STREAMING_HUB_KAFKA_TLS_ENABLED: 'true',
  STREAMING_HUB_KEK_REF: 'MASTER_KEY',
  MASTER_KEY: kek,
};

function refusal(env: Record<string, string>): string {
  try {
    readSettings(env);
  } catch (error) {
    expect(error).toBeInstanceOf(SettingsError);
    return (error as SettingsError).message;
  }
  throw new Error('the settings were accepted');
}

describe('defaults', () => {
  it('is local, embedded and open on loopback when nothing is given', () => {
    const settings = readSettings({ HOME: '/root' });
    expect(settings).toMatchObject({
      env: 'local',
      role: 'all',
      embeddedPostgres: true,
      embeddedStream: true,
      auth: 'none',
      httpListenAddr: '127.0.0.1:8090',
      tenantId: 'default',
      allowPrivateSinks: true,
      topicAutoCreate: true,
      deliveryTimeout_ms: 15_000,
      dispatchIdleInterval_ms: 250,
      reconcilerInterval_ms: 300_000,
      kafkaGroup: 'streaming-hub.local',
      keks: [],
    });
    expect(settings.retrySchedule_seconds).toEqual([
      0, 5, 300, 1_800, 7_200, 18_000, 36_000, 36_000,
    ]);
  });

  it('is production as soon as infrastructure is given', () => {
    const settings = readSettings(production);
    expect(settings).toMatchObject({
      env: 'production',
      embeddedPostgres: false,
      embeddedStream: false,
      auth: 'api-key',
      allowPrivateSinks: false,
      topicAutoCreate: false,
      kafkaBrokers: ['kafka-1:9093', 'kafka-2:9093'],
      kafkaGroup: 'streaming-hub.production',
    });
    expect(settings.keks).toHaveLength(1);
    expect(settings.keks[0]?.key.toString('base64')).toBe(kek);
    expect(settings.keks[0]?.id).toMatch(/^[0-9a-f]{16}$/);
  });

  it('keeps the stream in a given Postgres when there are no brokers', () => {
    const {
      STREAMING_HUB_KAFKA_BROKERS: _,
      STREAMING_HUB_KAFKA_TLS_ENABLED: __,
      ...env
    } = production;
    expect(readSettings(env)).toMatchObject({ embeddedPostgres: false, embeddedStream: true });
  });

  it('sizes the pool by role', () => {
    expect(readSettings({ STREAMING_HUB_ROLE: 'ingest' }).postgresMaxOpenConns).toBe(8);
    expect(readSettings({ STREAMING_HUB_ROLE: 'delivery' }).postgresMaxIdleConns).toBe(10);
  });

  it('treats blank variables as absent', () => {
    expect(readSettings({ STREAMING_HUB_POSTGRES_DSN: '', STREAMING_HUB_ROLE: ' ' }).role).toBe(
      'all',
    );
  });

  it('runs the embedded Postgres beside a real Kafka in local only', () => {
    const env = { STREAMING_HUB_ENV: 'local', STREAMING_HUB_KAFKA_BROKERS: 'localhost:9092' };
    expect(readSettings(env)).toMatchObject({ embeddedPostgres: true, embeddedStream: false });
  });
});

describe('values', () => {
  it.each([
    ['STREAMING_HUB_DISPATCH_IDLE_INTERVAL_MS', '500', 'dispatchIdleInterval_ms', 500],
    ['STREAMING_HUB_RECONCILER_INTERVAL', '2', 'reconcilerInterval_ms', 2_000],
    ['STREAMING_HUB_RECONCILER_INTERVAL', '500ms', 'reconcilerInterval_ms', 500],
    ['STREAMING_HUB_MANIFEST_REFRESH_INTERVAL', '60', 'manifestRefreshInterval_ms', 60_000],
    ['STREAMING_HUB_DELIVERY_TIMEOUT', '2s', 'deliveryTimeout_ms', 2_000],
    ['STREAMING_HUB_SHUTDOWN_TIMEOUT', '0', 'shutdownTimeout_ms', 0],
    ['STREAMING_HUB_BREAKER_FAILURE_RATIO', '0.25', 'breakerFailureRatio', 0.25],
    ['STREAMING_HUB_PULL_RATE', '5', 'pullRate', 5],
    ['STREAMING_HUB_METRICS_ENABLED', 'false', 'metricsEnabled', false],
  ] as const)('%s=%s', (name, value, key, expected) => {
    expect(readSettings({ [name]: value })[key]).toBe(expected);
  });

  it('reads a retry schedule', () => {
    const settings = readSettings({ STREAMING_HUB_RETRY_SCHEDULE: '0s, 250ms,5m' });
    expect(settings.retrySchedule_seconds).toEqual([0, 0.25, 300]);
  });

  it('reads several key names, the first one first', () => {
    const other = randomBytes(32).toString('base64');
    const env = { ...production, STREAMING_HUB_KEK_REF: 'NEW_KEY,MASTER_KEY', NEW_KEY: other };
    expect(readSettings(env).keks.map(({ key }) => key.toString('base64'))).toEqual([other, kek]);
  });

  it('lets KEK_REF name a variable with our prefix', () => {
    const env = { STREAMING_HUB_KEK_REF: 'STREAMING_HUB_MASTER', STREAMING_HUB_MASTER: kek };
    expect(readSettings(env).keks).toHaveLength(1);
  });
});

describe('refusals', () => {
  const { STREAMING_HUB_KEK_REF: _, ...withoutKek } = production;
  it.each<[string, Record<string, string>, RegExp]>([
    [
      'a misspelt name',
      { STREAMING_HUB_KAFKA_BROKER: 'a:1' },
      /did you mean STREAMING_HUB_KAFKA_BROKERS\?/,
    ],
    [
      'an unknown name',
      { STREAMING_HUB_QUANTUM_FLUX_CAPACITY: '1' },
      /is not a setting of this hub/,
    ],
    [
      'a name of other releases',
      { STREAMING_HUB_REDIS_ADDRESS: 'r:1' },
      /needs no Redis: remove it/,
    ],
    [
      'a word that is no choice',
      { STREAMING_HUB_ROLE: 'both' },
      /must be one of all, ingest, delivery, and "both" is not/,
    ],
    ['a flag that is none', { STREAMING_HUB_METRICS_ENABLED: 'yes' }, /must be true or false/],
    [
      'a number out of bounds',
      { STREAMING_HUB_DISPATCH_WORKERS: '0' },
      /a whole number from 1 to 1024/,
    ],
    ['a duration without unit', { STREAMING_HUB_DELIVERY_TIMEOUT: '15' }, /such as 15s or 15ms/],
    ['a duration too long', { STREAMING_HUB_DELIVERY_TIMEOUT: '31s' }, /to 30s/],
    ['a malformed schedule', { STREAMING_HUB_RETRY_SCHEDULE: '0s,soon' }, /durations with units/],
    ['a schedule too long', { STREAMING_HUB_RETRY_SCHEDULE: '11h' }, /a usable schedule/],
    ['a malformed address', { STREAMING_HUB_HTTP_LISTEN_ADDR: '8090' }, /host:port/],
    [
      'a port that does not exist',
      { STREAMING_HUB_HTTP_LISTEN_ADDR: '127.0.0.1:70000' },
      /0 to 65535/,
    ],
    ['no key outside local', withoutKek, /No key-encryption key/],
    [
      'a key reference to nothing',
      { STREAMING_HUB_KEK_REF: 'NOPE' },
      /names NOPE, which is not set/,
    ],
    ['a short key', { ...production, MASTER_KEY: 'c2hvcnQ=' }, /exactly 32 bytes in base64/],
    [
      'private sinks in production',
      { ...production, STREAMING_HUB_ALLOW_PRIVATE_SINKS: 'true' },
      /refused in production/,
    ],
    [
      'Kafka without TLS in production',
      { ...production, STREAMING_HUB_KAFKA_TLS_ENABLED: 'false' },
      /without TLS is refused/,
    ],
    [
      'insecure Kafka in production',
      { ...production, STREAMING_HUB_ALLOW_INSECURE_KAFKA: 'true' },
      /refused in production/,
    ],
    [
      'insecure Postgres in production',
      { ...production, STREAMING_HUB_ALLOW_INSECURE_DB_TLS: 'true' },
      /refused in production/,
    ],
    [
      'Postgres in clear over a network',
      { ...production, STREAMING_HUB_POSTGRES_DSN: 'postgres://db.example/hub' },
      /sslmode/,
    ],
    [
      'half a SCRAM pair',
      { STREAMING_HUB_KAFKA_SCRAM_USERNAME: 'me' },
      /MECHANISM and STREAMING_HUB_KAFKA_SCRAM_PASSWORD/,
    ],
    [
      'a certificate without TLS',
      { STREAMING_HUB_KAFKA_CA_CERT: 'YQ==' },
      /does nothing without TLS/,
    ],
    [
      'brokers without a database',
      { STREAMING_HUB_KAFKA_BROKERS: 'a:1' },
      /POSTGRES_DSN is missing/,
    ],
    ['no infrastructure in staging', { STREAMING_HUB_ENV: 'staging' }, /POSTGRES_DSN is missing/],
    [
      'no authentication beyond loopback',
      { STREAMING_HUB_HTTP_LISTEN_ADDR: ':8080' },
      /loopback only/,
    ],
    [
      'idle above open connections',
      { STREAMING_HUB_POSTGRES_MAX_IDLE_CONNS: '99' },
      /must not exceed/,
    ],
    [
      'retention without horizon',
      { STREAMING_HUB_PARTITION_RETENTION_ENABLED: 'true' },
      /at least 168h/,
    ],
    ['a roster for the wrong contract', { STREAMING_HUB_TENANTS: 'acme' }, /contract v1 only/],
  ])('%s', (_name, env, sentence) => {
    const message = refusal(env);
    expect(message).toMatch(sentence);
    expect(message.split('\n')).toHaveLength(1);
  });

  it('allows Kafka without TLS in staging', () => {
    const env = {
      ...production,
      STREAMING_HUB_ENV: 'staging',
      STREAMING_HUB_KAFKA_TLS_ENABLED: 'false',
    };
    expect(readSettings(env).env).toBe('staging');
  });

  it('allows a Postgres on this machine without TLS in production', () => {
    for (const dsn of ['postgres://hub@localhost/hub', 'postgres:///hub?host=/run/postgresql']) {
      expect(readSettings({ ...production, STREAMING_HUB_POSTGRES_DSN: dsn }).env).toBe(
        'production',
      );
    }
  });

  it('never shows a secret', () => {
    expect(refusal({ STREAMING_HUB_POSTGRES_DSN: 'mysql://me:hunter2@db' })).not.toContain(
      'hunter2',
    );
    expect(refusal({ ...production, MASTER_KEY: 'aHVudGVyMg==' })).not.toContain('aHVudGVyMg');
  });
});

describe('what is shown', () => {
  it('masks secrets and says where a value comes from', () => {
    const described = describeSettings(
      readSettings({
        ...production,
        STREAMING_HUB_KAFKA_SCRAM_MECHANISM: 'SCRAM-SHA-512',
        STREAMING_HUB_KAFKA_SCRAM_USERNAME: 'hub',
        STREAMING_HUB_KAFKA_SCRAM_PASSWORD: 'hunter2',
      }),
    );
    const text = JSON.stringify(described);
    expect(text).not.toMatch(/s3cret|hunter2/);
    expect(text).not.toContain(kek);
    expect(described).toContainEqual({
      name: 'STREAMING_HUB_POSTGRES_DSN',
      value: 'postgres://hub:***@db.example:5432/hub',
      from: 'environment',
    });
    expect(described).toContainEqual({
      name: 'STREAMING_HUB_DELIVERY_TIMEOUT',
      value: '15s',
      from: 'default',
    });
    expect(described).toContainEqual({
      name: 'STREAMING_HUB_ENV',
      value: 'production',
      from: 'default',
    });
  });

  it('names given settings that nothing acts on yet', () => {
    const settings = readSettings({
      STREAMING_HUB_DLQ_GROUP: 'mine',
      STREAMING_HUB_PULL_RATE: '5',
    });
    expect(settingsWithoutEffect(settings)).toEqual(['STREAMING_HUB_DLQ_GROUP']);
  });

  it('every default can be written into its own variable', () => {
    const settings = readSettings({});
    for (const [key, setting] of Object.entries(settingsTable)) {
      const text = (setting.format as (value: unknown) => string)(
        settings[key as keyof typeof settingsTable],
      );
      if (text !== '') expect(setting.parse(text), setting.name).toMatchObject({ ok: true });
    }
  });

  it('the reference page is the one this table makes (node scripts/docs.ts writes it)', () => {
    const page = new URL('../../../../docs/reference/settings.md', import.meta.url);
    expect(readFileSync(page, 'utf8')).toBe(settingsReference());
  });
});

it('a key put where the name of its variable belongs is not printed', () => {
  for (const key of [Buffer.alloc(32, 251).toString('base64'), 'A'.repeat(43)]) {
    const read = () => readSettings({ STREAMING_HUB_KEK_REF: key });
    expect(read).toThrow(/not shown/);
    expect(read).not.toThrow(new RegExp(key.slice(0, 20).replace(/[+/]/g, '.')));
  }
});
