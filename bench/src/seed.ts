import { ProduceAcks, Producer } from '@platformatic/kafka';
import { Pool } from 'undici';
import type { Bench, BenchDatabase } from './environment.ts';
import {
  type BenchEvent,
  benchEvent,
  benchTopic,
  entries,
  recordOf,
  tenants,
  typeName,
} from './events.ts';
import { type HubProcess, startHub } from './hub.ts';

const publishBatch = 500;
const publishParallel = 4;

interface SubscriptionPlan {
  readonly tenant_id: string;
  readonly url: string;
  readonly type: string;
  readonly ordering: 'unordered' | 'fifo';
}

/** Ten tenants with ten destinations each, one per event type: 100 lanes, fan-out 1. */
export function hundredLanes(ports: readonly number[]): SubscriptionPlan[] {
  return tenants.flatMap((tenant_id, t) =>
    entries.map((_, n) => ({
      tenant_id,
      url: `http://127.0.0.1:${ports[n % ports.length]}/t${t}/hook`,
      type: typeName(n),
      ordering: 'unordered' as const,
    })),
  );
}

/** Creates subscriptions through the API and waits until every one of them has proved itself. */
export async function subscribe(
  hub: HubProcess,
  database: BenchDatabase,
  plans: readonly SubscriptionPlan[],
): Promise<void> {
  const url = await hub.url();
  for (const plan of plans) {
    const answer = await fetch(`${url}/v1/subscriptions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-tenant-id': plan.tenant_id },
      body: JSON.stringify({
        destination: { url: plan.url },
        event_types: [plan.type],
        ordering: plan.ordering,
      }),
    });
    if (answer.status !== 201) throw new Error(`subscribing failed: ${await answer.text()}`);
  }
  await untilSql(
    database,
    30_000,
    /* sql */ `
    select count(*) filter (where verification_state = 'active') as reached, ${plans.length} as wanted from subscriptions`,
  );
}

/** Polls a statement that answers `reached` and `wanted` until they meet. */
export async function untilSql(
  database: BenchDatabase,
  timeout_ms: number,
  text: string,
  poll_ms = 50,
): Promise<void> {
  const until_ms = performance.now() + timeout_ms;
  for (;;) {
    const answer = await database.pool.query<{ reached: number; wanted: number }>(text);
    const row = answer.rows[0];
    if (row && Number(row.reached) >= Number(row.wanted)) return;
    if (performance.now() > until_ms)
      throw new Error(
        `only ${row?.reached} of ${row?.wanted} after ${timeout_ms / 1000} s: ${text}`,
      );
    await new Promise((resolve) => setTimeout(resolve, poll_ms));
  }
}

export interface Publisher {
  /** Appends; durable when it resolves. */
  publish(events: readonly BenchEvent[]): Promise<void>;
  close(): Promise<void>;
}

/** To Kafka as a service would publish: idempotent, acknowledged by all replicas. */
export function kafkaPublisher(brokers: readonly string[]): Publisher {
  const producer = new Producer({
    clientId: 'bench',
    bootstrapBrokers: [...brokers],
    idempotent: true,
    retries: 10,
    retryDelay: 50,
  });
  return {
    async publish(events) {
      await producer.send({
        acks: ProduceAcks.ALL,
        messages: events.map((event) => {
          const { topic, key, value, headers } = recordOf(event);
          return {
            topic,
            key: key ?? undefined,
            value: value ?? undefined,
            headers: new Map(headers.map(([name, bytes]) => [name, bytes])),
          };
        }),
      });
    },
    close: async () => {
      await producer.close();
    },
  };
}

/** Through the hub's own door, for the embedded stream. */
export function httpPublisher(url: string): Publisher {
  const pool = new Pool(url, { connections: publishParallel });
  return {
    async publish(events) {
      for (const [tenant_id, own] of Map.groupBy(events, (event) => event.attributes['tenantid'])) {
        const documents = own.map(
          ({ attributes, body }) => `${JSON.stringify(attributes).slice(0, -1)},"data":${body}}`,
        );
        const answer = await pool.request({
          path: '/v1/events',
          method: 'POST',
          headers: {
            'content-type': 'application/cloudevents-batch+json',
            'x-tenant-id': tenant_id ?? '',
          },
          body: `[${documents.join()}]`,
        });
        const text = await answer.body.text();
        if (answer.statusCode !== 202) throw new Error(`publishing failed: ${text}`);
      }
    },
    close: () => pool.close(),
  };
}

/** Publishes `count` events of the workload, as fast as it goes. */
export async function publishMany(publisher: Publisher, count: number): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < count) {
      const start = next;
      next = Math.min(count, next + publishBatch);
      await publisher.publish(
        Array.from({ length: next - start }, (_, n) => benchEvent(start + n)),
      );
    }
  };
  await Promise.all(Array.from({ length: publishParallel }, worker));
}

/**
 * A database with `count` undelivered events on 100 lanes: published to the stream and ingested by
 * a hub that does not deliver, exactly as in production.
 */
export async function seedBacklog(
  bench: Bench,
  database: BenchDatabase,
  count: number,
  plans: readonly SubscriptionPlan[],
  publish: (publisher: Publisher) => Promise<void> = (publisher) => publishMany(publisher, count),
): Promise<void> {
  const kafka = await bench.kafka();
  if (kafka) await createTopic(kafka.brokers);
  const hub = startHub(bench, {
    role: 'ingest',
    dsn: database.dsn,
    brokers: kafka?.brokers ?? null,
    name: 'seed',
    settings: { STREAMING_HUB_KAFKA_GROUP: `seed-${process.hrtime.bigint()}` },
  });
  const url = await hub.url();
  await subscribe(hub, database, plans);
  const publisher = kafka ? kafkaPublisher(kafka.brokers) : httpPublisher(url);
  await publish(publisher);
  await publisher.close();
  await untilSql(
    database,
    180_000,
    `select count(*) as reached, ${count} as wanted from deliveries`,
    200,
  );
  await hub.stop();
  await database.pool.query('vacuum (analyze)');
  await database.pool.query('checkpoint');
}

/** A topic of its own for every scenario: an old one is removed first. */
export async function createTopic(brokers: readonly string[], partitions = 6): Promise<void> {
  const { Admin } = await import('@platformatic/kafka');
  const admin = new Admin({ clientId: 'bench', bootstrapBrokers: [...brokers], retries: 10 });
  try {
    const topics = await admin.listTopics();
    if (topics.includes(benchTopic)) {
      await admin.deleteTopics({ topics: [benchTopic] });
      while ((await admin.listTopics()).includes(benchTopic))
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
    await admin.createTopics({ topics: [benchTopic], partitions, replicas: 1 });
    while (!(await admin.listTopics()).includes(benchTopic))
      await new Promise((resolve) => setTimeout(resolve, 50));
  } finally {
    await admin.close();
  }
}
