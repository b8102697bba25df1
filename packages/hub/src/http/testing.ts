import { defaultRules } from '@streaming-hub/contract';
import { createTestDatabase, type TestDatabase } from '@streaming-hub/testkit';
import type { FastifyInstance, FastifyPluginAsync, InjectOptions } from 'fastify';
import type pg from 'pg';
import type { TSchema } from 'typebox';
import Value from 'typebox/value';
import { uuidv7 } from 'uuidv7';
import { createAuthenticate } from '../auth/index.ts';
import { createLog, systemClock } from '../base/index.ts';
import { createMetrics } from '../metrics/index.ts';
import { type OutgoingRecord, type Stream, UnknownTopicError } from '../stream/index.ts';
import type { RateLimitSettings } from './rate-limit.ts';
import { createReadiness, type ReadinessCheck } from './readiness.ts';
import { buildHttpServer } from './server.ts';

/** Helpers of the tests in this folder. */

/** A stream that keeps what it is given and can be told to fail. */
export function memoryStream() {
  const records: OutgoingRecord[] = [];
  const topics = new Set<string>();
  const stream: Pick<Stream, 'publish' | 'ensureTopics'> = {
    async publish(given) {
      if (control.fault) throw control.fault;
      for (const { topic } of given) if (!topics.has(topic)) throw new UnknownTopicError(topic);
      const first = records.length;
      records.push(...given);
      return given.map(({ topic }, index) => ({ topic, partition: 0, offset: first + index }));
    },
    async ensureTopics(specs) {
      for (const { name } of specs) topics.add(name);
    },
  };
  const control = { stream, records, topics, fault: null as Error | null };
  return control;
}

export interface TestServer {
  readonly app: FastifyInstance;
  readonly database: TestDatabase;
  readonly pool: pg.Pool;
  readonly memory: ReturnType<typeof memoryStream>;
  readonly created: string[];
  readonly readiness: ReturnType<typeof createReadiness>;
  readonly metrics: ReturnType<typeof createMetrics>;
  /** Injects as a tenant and answers status, headers and the parsed body. */
  call(tenant_id: string, options: InjectOptions): Promise<Answer>;
  close(): Promise<void>;
}

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  // oxlint-disable-next-line typescript/no-explicit-any -- tests look into answers of every shape
  readonly body: any;
}

interface TestOptions {
  readonly auth?: 'none' | 'api-key';
  readonly topicAutoCreate?: boolean;
  readonly checks?: readonly ReadinessCheck[];
  readonly stream?: Pick<Stream, 'publish' | 'ensureTopics'>;
  readonly routes?: readonly FastifyPluginAsync[];
  /** Instead of the test database's own. */
  readonly pool?: pg.Pool;
  readonly onTopicCreated?: () => Promise<void>;
  readonly pull?: RateLimitSettings;
}

export async function startTestServer(options: TestOptions = {}): Promise<TestServer> {
  const database = await createTestDatabase();
  const memory = memoryStream();
  const created: string[] = [];
  const metrics = createMetrics();
  const readiness = createReadiness(options.checks ?? [], () => {});
  const app = buildHttpServer({
    pool: options.pool ?? database.pool,
    stream: options.stream ?? memory.stream,
    rules: defaultRules,
    authenticate: createAuthenticate({
      mode: options.auth ?? 'none',
      default_tenant_id: 'default',
      pool: database.pool,
      clock: systemClock,
      onFault: () => {},
    }),
    readiness,
    metrics,
    metricsEnabled: true,
    log: createLog({ level: 'silent' }),
    clock: systemClock,
    publish: { topicAutoCreate: options.topicAutoCreate ?? true, topicPartitions: 3 },
    onTopicCreated: options.onTopicCreated ?? (async () => void created.push('refresh')),
    ...(options.pull && { pull: options.pull }),
    routes: options.routes ?? [],
  });
  holdAnswersToTheirSchemas(app);
  await app.ready();
  return {
    app,
    database,
    pool: database.pool,
    memory,
    created,
    readiness,
    metrics,
    async call(tenant_id, given) {
      const answer = await app.inject({
        ...given,
        headers: { 'x-tenant-id': tenant_id, ...given.headers },
      });
      return {
        status: answer.statusCode,
        headers: answer.headers,
        body: answer.body ? answer.json() : null,
      };
    },
    async close() {
      await app.close();
      await database.drop();
    },
  };
}

/** Every answer must fit the schema its route declares, or the test sees a 500. */
function holdAnswersToTheirSchemas(app: FastifyInstance): void {
  app.addHook('preSerialization', async (request, reply, payload) => {
    const response = request.routeOptions.schema?.response as Record<string, TSchema> | undefined;
    const schema = response?.[reply.statusCode];
    if (!schema) return payload;
    const sent: unknown = JSON.parse(JSON.stringify(payload));
    if (!Value.Check(schema, sent)) {
      throw new Error(
        `answer does not fit its schema: ${JSON.stringify(Value.Errors(schema, sent))}`,
      );
    }
    return payload;
  });
}

export interface Seeded {
  readonly tenant_id: string;
  readonly subscription_id: string;
  readonly subscription_number: number;
  readonly lane_id: number;
}

/** A subscription that is active, with its lane. */
export async function seedSubscription(pool: pg.Pool, tenant_id: string): Promise<Seeded> {
  const lane = await pool.query<{ id: number }>(
    `insert into lanes (tenant_id, kind, address) values ($1, 'webhook', $2) returning id`,
    [tenant_id, `https://${uuidv7()}.example`],
  );
  const lane_id = lane.rows[0]?.id ?? 0;
  const subscription_id = uuidv7();
  const made = await pool.query<{ number: number }>(
    `insert into subscriptions (id, tenant_id, kind, verification_state, destination, lane_id, event_types, format,
       ordering, max_in_flight, verification_method)
     values ($1, $2, 'webhook', 'active', '{"url":"https://a.example"}', $3, '{*}', 'binary', 'fifo', 1, 'challenge')
     returning number`,
    [subscription_id, tenant_id, lane_id],
  );
  return { tenant_id, subscription_id, subscription_number: made.rows[0]?.number ?? 0, lane_id };
}

let lastSequence = Date.now() * 1_000;

export async function seedEvent(
  pool: pg.Pool,
  tenant_id: string,
  body: Buffer | null = Buffer.from('{"n":1}'),
): Promise<{ id: string; seq: number }> {
  const id = uuidv7();
  lastSequence += 1;
  const attributes = {
    specversion: '1.0',
    id,
    source: 'midaz',
    type: 'studio.lerian.midaz.account.created',
    time: '2026-11-30T12:00:00Z',
    schemaversion: '1.0.0',
    resourcetype: 'account',
    eventtype: 'created',
    tenantid: tenant_id,
    datacontenttype: 'application/json',
  };
  await pool.query(
    `insert into event_inbox (tenant_id, ce_id, seq, origin, event_type, attributes, body)
     values ($1, $2, $3, 'midaz', 'account.created', $4, $5)`,
    [tenant_id, id, lastSequence, attributes, body],
  );
  return { id, seq: lastSequence };
}

/** An event matched with the subscription; nothing tried yet. */
export async function seedDelivery(
  pool: pg.Pool,
  to: Seeded,
): Promise<{ event_id: string; seq: number }> {
  const event = await seedEvent(pool, to.tenant_id);
  await pool.query(
    `insert into deliveries (lane_id, seq, subscription_number, tenant_id, ce_id) values ($1, $2, $3, $4, $5)`,
    [to.lane_id, event.seq, to.subscription_number, to.tenant_id, event.id],
  );
  return { event_id: event.id, seq: event.seq };
}

export async function seedAttempt(
  pool: pg.Pool,
  to: Seeded,
  seq: number,
  attempt: { number: number; outcome: string; final: boolean; error?: string },
): Promise<void> {
  await pool.query(
    `insert into delivery_attempts (lane_id, seq, subscription_number, tenant_id, attempt, delivery_attempt_id,
       started_at, duration_us, outcome, final, status, error_code, error_message, first_byte_us)
     values ($1, $2, $3, $4, $5, $6, now(), 12500, $7, $8, $9, $10, $10, 9000)`,
    [
      to.lane_id,
      seq,
      to.subscription_number,
      to.tenant_id,
      attempt.number,
      uuidv7(),
      attempt.outcome,
      attempt.final,
      attempt.outcome === 'delivered' ? 200 : 500,
      attempt.error ?? null,
    ],
  );
}

export async function seedDeadLetter(
  pool: pg.Pool,
  to: Seeded,
  attempts = 2,
): Promise<{ event_id: string; seq: number }> {
  const delivery = await seedDelivery(pool, to);
  for (let number = 1; number <= attempts; number++) {
    const final = number === attempts;
    await seedAttempt(pool, to, delivery.seq, {
      number,
      outcome: 'failed',
      final,
      error: 'http_status',
    });
  }
  await pool.query(
    `insert into dead_letters (lane_id, seq, subscription_number, tenant_id, ce_id, reason, attempts, last_status, last_error)
     values ($1, $2, $3, $4, $5, 'exhausted', $6, 500, 'answered 500')`,
    [to.lane_id, delivery.seq, to.subscription_number, to.tenant_id, delivery.event_id, attempts],
  );
  return delivery;
}

export async function seedRetry(
  pool: pg.Pool,
  to: Seeded,
  delivery: { event_id: string; seq: number },
  state: 'scheduled' | 'parked',
): Promise<void> {
  await pool.query(
    `insert into retries (lane_id, seq, subscription_number, tenant_id, ce_id, shard, state, attempts, due_at, reason)
     select $1, $2, $3, $4, $5, shard, $6, 1, now() + interval '5 s', 'http_status' from lanes where id = $1`,
    [to.lane_id, delivery.seq, to.subscription_number, to.tenant_id, delivery.event_id, state],
  );
}
