import { choice, duration, flag, localElse, text, whole, word } from '../setting.ts';

/** What the process is, where it listens and how it stops. */
export const processSettings = {
  env: choice('ENV', ['local', 'staging', 'production'], {
    default: 'local',
    description:
      'How strict the hub is. Without it: `local` while both Postgres and the stream are embedded, `production` once a DSN or brokers are given.',
  }),
  role: choice('ROLE', ['all', 'ingest', 'delivery'], {
    default: 'all',
    description:
      'Which background work this process does. Every role serves the whole HTTP surface.',
  }),
  logLevel: choice('LOG_LEVEL', ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], {
    default: 'info',
    description: 'Least severity that is logged.',
  }),
  dataDir: word('DATA_DIR', {
    default: './data',
    accepts: 'a folder',
    pattern: /^[^\p{Cc}]+$/u,
    description:
      'Folder of the embedded Postgres, of `hub.json` (address and process id) and, in local, of the key file.',
  }),
  httpListenAddr: word('HTTP_LISTEN_ADDR', {
    default: '127.0.0.1:8090',
    accepts: 'host:port, such as 127.0.0.1:8090, [::1]:8090 or :8080 for every interface',
    pattern: /^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]*):\d{1,5}$/,
    description:
      'Where the HTTP server listens. Port 0 takes any free one, printed and kept in `hub.json`.',
  }),
  auth: choice('AUTH', ['none', 'api-key'], {
    default: localElse('none', 'api-key', String),
    description:
      'How callers prove who they are. `none` takes the tenant from `X-Tenant-Id` and works on loopback only.',
  }),
  tenantId: word('TENANT_ID', {
    default: 'default',
    accepts: '1 to 256 letters, digits, - or _, starting with a letter or digit',
    pattern: /^[A-Za-z0-9][A-Za-z0-9_-]{0,255}$/,
    description: 'Tenant of a request that names none (with `AUTH=none`).',
  }),
  metricsEnabled: flag('METRICS_ENABLED', {
    default: true,
    description: 'Serves `/metrics` in the Prometheus text format.',
  }),
  pullRate: whole('PULL_RATE', {
    default: 100,
    min: 1,
    max: 1_000_000,
    description:
      'Requests per second that one tenant may make to `GET /v1/events`. Tune with `PULL_BURST`.',
  }),
  pullBurst: whole('PULL_BURST', {
    default: 200,
    min: 1,
    max: 1_000_000,
    description: 'Requests to `GET /v1/events` that one tenant may make at once.',
  }),
  idempotencyTtl_ms: duration('IDEMPOTENCY_TTL', {
    planned: true,
    default: 24 * 3_600_000,
    min_ms: 60_000,
    description: 'How long the answer of a request with an `Idempotency-Key` is kept.',
  }),
  idempotencyReapInterval_ms: duration('IDEMPOTENCY_REAP_INTERVAL', {
    planned: true,
    default: 300_000,
    min_ms: 1_000,
    description: 'How often expired idempotency keys are removed.',
  }),
  shutdownTimeout_ms: duration('SHUTDOWN_TIMEOUT', {
    default: 30_000,
    max_ms: 55_000,
    description: 'Longest wait for attempts in flight after SIGTERM.',
  }),
  preStopDrainTimeout_ms: duration('PRE_STOP_DRAIN_TIMEOUT', {
    default: localElse(0, 5_000, (value) => `${value / 1_000}s`),
    max_ms: 30_000,
    description:
      'How long `/readyz` answers 503 before the HTTP server stops, so that load balancers notice.',
  }),
  kekSource: choice('KEK_SOURCE', ['env'], {
    default: 'env',
    description: 'Where the key-encryption key comes from: a variable of this process.',
  }),
  kekRef: text('KEK_REF', {
    default: null,
    accepts:
      'the name of the variable that holds the key (never the key itself), or several separated by commas',
    pattern: /^[A-Za-z_][A-Za-z0-9_]{0,127}(,[A-Za-z_][A-Za-z0-9_]{0,127}){0,7}$/,
    description:
      'Name of the variable that holds the key-encryption key: 32 bytes in base64. Of several names the first one wraps, the others only unwrap what they wrapped before. In local without it a key is made once and kept in `DATA_DIR/kek`.',
  }),
  devKek: text('DEV_KEK', {
    default: null,
    secret: true,
    description: 'A variable that `KEK_REF` may name; read only then.',
  }),
} as const;
