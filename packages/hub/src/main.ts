import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type pg from 'pg';
import { uuidv7 } from 'uuidv7';
import { createEgress, createWebhookSink } from './attempt/index.ts';
import { createAuthenticate } from './auth/index.ts';
import { type Clock, type Logger, type Service, systemClock } from './base/index.ts';
import { buildHttpServer, createHttpService, createReadiness } from './http/index.ts';
import { createIngest, type Ingest } from './ingest/index.ts';
import { createKeyring, type Keyring, openKeyProvider } from './keys/index.ts';
import { Dispatcher, freeLeftLeases } from './lanes/index.ts';
import { createMetrics } from './metrics/index.ts';
import { attemptObserver, installGauges } from './observe.ts';
import { contractRules, parseListenAddress, type Settings } from './settings/index.ts';
import {
  createPartitionCron,
  type EmbeddedPostgres,
  ensurePartitions,
  migrate,
  openPool,
  startEmbeddedPostgres,
} from './store/index.ts';
import { openStream, removeLeftMembers } from './stream/index.ts';
import {
  createSubscriptions,
  readSubscriptionsByNumber,
  readSubscriptionsChangedSince,
  subscriptionRoutes,
} from './subscriptions/index.ts';
import { userAgent } from './version.ts';

/** A running hub: what a process, a test or the demo holds in its hand. */
export interface Hub extends Service {
  /** Where its API listens; null before the start and after the stop. */
  url(): string | null;
  /** For commands that act on the database directly. */
  readonly pool: pg.Pool;
}

/** Of its connections, the short hot statements of ingest and dispatch get this many each at most. */
const hotConnections_max = 8;

/**
 * Builds every part and connects it, in the order in which an event walks through:
 * stream → ingest → inbox and matching → lanes → attempt → outcome, and HTTP beside it.
 * Nothing runs before `start`, except the embedded Postgres and the migrations.
 */
export async function createHub(
  settings: Settings,
  log: Logger,
  clock: Clock = systemClock,
): Promise<Hub> {
  const onFault = (fault: Error) => log.warn({ err: fault }, fault.message);
  const process_id = uuidv7();
  const rules = contractRules(settings);

  // The store.
  const embedded = settings.embeddedPostgres
    ? await startEmbeddedPostgres({ data_dir: settings.dataDir, log })
    : null;
  const database: pg.PoolConfig = embedded?.config ?? {
    connectionString: settings.postgresDsn ?? '',
  };
  const lived = { ...database, maxLifetimeSeconds: settings.postgresConnMaxLifetime_ms / 1000 };
  const pool = openPool(lived, {
    application_name: 'streaming-hub',
    max: settings.postgresMaxOpenConns,
    log,
  });
  const hotPool = (name: string) =>
    openPool(lived, {
      application_name: `streaming-hub ${name}`,
      max: Math.min(hotConnections_max, settings.postgresMaxOpenConns),
      force_generic_plan: true,
      log,
    });
  const pools = { ingest: hotPool('ingest'), dispatch: hotPool('dispatch') };
  const closeStore = async () => {
    await Promise.all([pool.end(), pools.ingest.end(), pools.dispatch.end()]);
    await embedded?.stop();
  };

  let keyring: Keyring;
  try {
    await prepareDatabase(pool, embedded);
    keyring = await openKeyring(settings, pool);
  } catch (error) {
    await closeStore();
    throw error;
  }
  const partitions = createPartitionCron({
    pool,
    weeks_ahead: settings.partitionFutureBufferWeeks,
    interval_ms: settings.partitionCronInterval_ms,
    clock,
    log,
  });

  // What all stages use.
  const metrics = createMetrics();
  if (settings.metricsEnabled) metrics.collectProcess();
  const stream = openStream(settings, database, log);
  const egress = createEgress({
    allow_private: settings.allowPrivateSinks,
    allow_http: settings.allowPrivateSinks,
    clock,
  });
  const webhook = createWebhookSink({
    egress,
    header_prefix: settings.headerPrefix,
    timeout_ms: settings.deliveryTimeout_ms,
    user_agent: userAgent,
    show_private_excerpts: settings.env === 'local',
    clock,
    newId: uuidv7,
  });
  const subscriptions = createSubscriptions({
    pool,
    keys: keyring,
    guard: egress,
    sinks: { webhook },
    type_prefix: settings.typePrefix,
    log,
    clock,
  });

  // The way of an event.
  const dispatcher =
    settings.role === 'ingest'
      ? null
      : new Dispatcher({
          pool: pools.dispatch,
          connection: database,
          process_id,
          role: settings.role,
          subscriptions: {
            byNumber: (numbers) => readSubscriptionsByNumber(pool, numbers),
            changedSince: (version) => readSubscriptionsChangedSince(pool, version),
          },
          sinks: { webhook },
          secrets: (subscription) => subscriptions.secrets.live(subscription),
          schedule_seconds: settings.retrySchedule_seconds,
          poison_threshold: settings.poisonThreshold,
          workers: settings.dispatchWorkers,
          claim_batch: settings.dispatchClaimBatch,
          idle_interval_ms: settings.dispatchIdleInterval_ms,
          lease_ms: settings.shardLease_ms,
          drain_ms: settings.shutdownTimeout_ms,
          clock,
          random: Math.random,
          newId: uuidv7,
          onFault,
          ...attemptObserver(metrics, log),
        });
  const ingest: Ingest | null =
    settings.role === 'delivery'
      ? null
      : createIngest({
          pool: pools.ingest,
          stream,
          rules,
          group: settings.kafkaGroup,
          refresh_interval_ms: settings.reconcilerInterval_ms,
          metrics: metrics.ingest,
          log,
          clock,
          ...(dispatcher && {
            gate: () => dispatcher.whenKeepingPace(),
            onDeliveries: () => dispatcher.wake(),
          }),
        });

  // The outside.
  const readiness = createReadiness(
    [
      { name: 'database', check: async () => void (await pool.query('select 1')) },
      { name: 'stream', check: () => stream.ping() },
      { name: 'ingest', check: async () => mustBeHealthy(ingest?.consumer.healthy() ?? true) },
      { name: 'dispatch', check: async () => mustBeHealthy(dispatcher?.healthy() ?? true) },
    ],
    (name, fault) => log.warn({ err: fault, check: name }, 'a readiness check failed'),
  );
  const app = buildHttpServer({
    pool,
    stream,
    rules,
    authenticate: createAuthenticate({
      mode: settings.auth,
      default_tenant_id: settings.tenantId,
      pool,
      clock,
      onFault: (fault) => log.warn({ err: fault }, 'an API key could not be marked as used'),
    }),
    readiness,
    metrics,
    log,
    clock,
    publish: {
      topicAutoCreate: settings.topicAutoCreate,
      topicPartitions: settings.topicPartitions,
    },
    metricsEnabled: settings.metricsEnabled,
    pull: { rate_per_second: settings.pullRate, burst: settings.pullBurst },
    ...(ingest && { onTopicCreated: () => ingest.consumer.refresh() }),
    routes: [
      subscriptionRoutes({
        subscriptions,
        timeout_seconds_default: settings.deliveryTimeout_ms / 1000,
      }),
    ],
  });
  const http = createHttpService({
    app,
    address: parseListenAddress(settings.httpListenAddr),
    readiness,
    drain_ms: settings.preStopDrainTimeout_ms,
  });
  installGauges({ metrics, pool, ingest, dispatcher });

  const services: readonly (Service | null)[] = [
    partitions,
    subscriptions.verifier,
    dispatcher,
    ingest,
    http,
  ];
  const addressFile = join(settings.dataDir, 'hub.json');
  return {
    pool,
    url: () => http.url(),
    async start() {
      for (const service of services) await service?.start();
      await announce(addressFile, http.url());
    },
    /** HTTP says 503 and ends first, then the stream is let go, then attempts in flight finish. */
    async stop() {
      await rm(addressFile, { force: true });
      for (const service of services.toReversed()) {
        await service
          ?.stop()
          .catch((error: unknown) => log.error({ err: error }, 'a part did not stop cleanly'));
      }
      await webhook.close();
      await egress.close();
      await stream.close();
      await closeStore();
    },
  };
}

/** @throws KeyError when there is no key, or not the one that the stored secrets are sealed with. */
async function openKeyring(settings: Settings, pool: pg.Pool): Promise<Keyring> {
  const provider = await openKeyProvider({
    keks: settings.keks,
    local: settings.env === 'local',
    data_dir: settings.dataDir,
  });
  const keyring = createKeyring(pool, provider);
  await keyring.check();
  return keyring;
}

async function prepareDatabase(pool: pg.Pool, embedded: EmbeddedPostgres | null): Promise<void> {
  await migrate(pool);
  await ensurePartitions(pool);
  // Nobody else can have this folder open: whatever an earlier process left leased is free at once.
  if (embedded) {
    await freeLeftLeases(pool);
    await removeLeftMembers(pool);
  }
}

function mustBeHealthy(healthy: boolean): void {
  if (!healthy) throw new Error('its loops do not answer');
}

/** Tells tools on this machine where the hub listens; written whole or not at all. */
async function announce(file: string, url: string | null): Promise<void> {
  await mkdir(join(file, '..'), { recursive: true });
  const draft = `${file}.${process.pid}`;
  await writeFile(draft, `${JSON.stringify({ http: { url }, pid: process.pid })}\n`);
  await rename(draft, file);
}
