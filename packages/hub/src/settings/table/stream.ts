import { choice, Depends, duration, flag, list, localElse, text, whole, word } from '../setting.ts';

const second_ms = 1_000;

/** The stream, and what is read from it. */
export const streamSettings = {
  kafkaBrokers: list('KAFKA_BROKERS', {
    default: [],
    accepts: 'a comma list of host:port',
    pattern: /^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):\d{1,5}$/,
    count_max: 64,
    description: 'Kafka bootstrap servers. Empty: the embedded stream, kept in Postgres.',
  }),
  kafkaScramMechanism: text('KAFKA_SCRAM_MECHANISM', {
    default: null,
    accepts: 'SCRAM-SHA-256 or SCRAM-SHA-512',
    pattern: /^SCRAM-SHA-(256|512)$/,
    description: 'SASL mechanism; empty means no SASL.',
  }),
  kafkaScramUsername: text('KAFKA_SCRAM_USERNAME', {
    default: null,
    description: 'SCRAM user; needs the password and the mechanism.',
  }),
  kafkaScramPassword: text('KAFKA_SCRAM_PASSWORD', {
    default: null,
    secret: true,
    description: 'SCRAM password; needs the user and the mechanism.',
  }),
  kafkaTlsEnabled: flag('KAFKA_TLS_ENABLED', {
    default: false,
    description: 'TLS to the brokers. Production refuses Kafka without it.',
  }),
  kafkaCaCert: text('KAFKA_CA_CERT', {
    default: null,
    secret: true,
    accepts: 'a PEM certificate in base64',
    pattern: /^[A-Za-z0-9+/]+={0,2}$/,
    description:
      'Certificate authority of the brokers, PEM in base64; needs `KAFKA_TLS_ENABLED=true`.',
  }),
  allowInsecureKafka: flag('ALLOW_INSECURE_KAFKA', {
    default: false,
    description: 'Says that Kafka without TLS is meant. Production refuses `true`.',
  }),
  kafkaGroup: word('KAFKA_GROUP', {
    default: new Depends(({ env }) => `streaming-hub.${env}`, '`streaming-hub.<env>`'),
    accepts: '1 to 249 letters, digits, dots, - or _',
    pattern: /^[A-Za-z0-9._-]{1,249}$/,
    description: 'Consumer group of the ingest.',
  }),
  topicPrefix: word('TOPIC_PREFIX', {
    default: 'lerian.streaming.',
    accepts: 'lower-case words that each end with a dot',
    pattern: /^([a-z0-9][a-z0-9_-]*\.)+$/,
    description: 'What ingest topics begin with.',
  }),
  typePrefix: word('TYPE_PREFIX', {
    default: 'studio.lerian.',
    accepts: 'lower-case words that each end with a dot',
    pattern: /^([a-z0-9][a-z0-9_-]*\.)+$/,
    description: 'What `ce-type` begins with.',
  }),
  contract: choice('CONTRACT', ['v3', 'v1'], {
    default: 'v3',
    description: 'Grammar of topics and types: one topic per application, or one per event (v1).',
  }),
  tenants: list('TENANTS', {
    default: [],
    accepts: 'a comma list of tenant ids',
    pattern: /^[A-Za-z0-9][A-Za-z0-9_-]{0,255}$/,
    count_max: 10_000,
    description: 'Roster of contract v1: events of other tenants are dropped. Empty: no roster.',
  }),
  topicAutoCreate: flag('TOPIC_AUTO_CREATE', {
    default: localElse(true, false, String),
    description: 'Creates a missing topic when an event is published over HTTP.',
  }),
  topicPartitions: whole('TOPIC_PARTITIONS', {
    default: 6,
    min: 1,
    max: 1_000,
    description: 'Partitions of a topic that the hub creates.',
  }),
  reconcilerEnabled: flag('RECONCILER_ENABLED', {
    planned: true,
    default: true,
    description: 'Looks for new topics, and for topics and manifests that disagree.',
  }),
  reconcilerInterval_ms: duration('RECONCILER_INTERVAL', {
    default: 300 * second_ms,
    bare_unit_ms: second_ms,
    min_ms: 100,
    description: 'How often new topics are looked for.',
  }),
  manifestRefreshInterval_ms: duration('MANIFEST_REFRESH_INTERVAL', {
    planned: true,
    default: 300 * second_ms,
    bare_unit_ms: second_ms,
    min_ms: second_ms,
    description: 'How often the catalogue of event types is refreshed from producers.',
  }),
  dlqGroup: word('DLQ_GROUP', {
    planned: true,
    default: new Depends(({ env }) => `streaming-hub-dlq.${env}`, '`streaming-hub-dlq.<env>`'),
    accepts: '1 to 249 letters, digits, dots, - or _',
    pattern: /^[A-Za-z0-9._-]{1,249}$/,
    description: "Consumer group that watches producers' dead-letter topics.",
  }),
  dlqRetention_ms: duration('DLQ_RETENTION', {
    planned: true,
    default: 168 * 3_600 * second_ms,
    min_ms: 60 * second_ms,
    description: "How long producers' dead letters are kept.",
  }),
  dlqPruneInterval_ms: duration('DLQ_PRUNE_INTERVAL', {
    planned: true,
    default: 3_600 * second_ms,
    min_ms: second_ms,
    description: "How often producers' dead letters beyond their retention are removed.",
  }),
} as const;
