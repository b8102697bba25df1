import { Pool } from 'undici';
import { cpuOf } from './bare/run.ts';
import type { Bench } from './environment.ts';
import { type BenchEvent, eventOf, tenants } from './events.ts';
import { percentiles, type Result, round } from './figures.ts';
import { startHub } from './hub.ts';
import { load } from './machine.ts';
import { pace } from './pace.ts';
import { peakMemory_mib } from './processes.ts';
import { createTopic, hundredLanes, kafkaPublisher, subscribe } from './seed.ts';
import { noteStatements, resetStatements } from './statements.ts';

/** P3: from publishing to the first byte at the receiver, under a light and constant load. */
const per_second = 200;
const duration_seconds = { full: 60, quick: 10 };
/** Sent before, so that code and connections are warm. */
const warmUp_seconds = 3;
const bar =
  '(a) HTTP, embedded stream: p50 <= 4, p95 <= 6, p99 <= 15 ms; (b) Kafka: p50 <= 8, p95 <= 15, p99 <= 40 ms';

type Way = 'http' | 'kafka';
interface Latency {
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
  readonly max: number;
  readonly hub_cpu_us: number;
  readonly postgres_cpu_us: number;
  readonly memory_mib: number;
}

export async function p3(bench: Bench): Promise<Result> {
  const http = await measure(bench, 'http');
  const kafka = (await bench.kafka()) ? await measure(bench, 'kafka') : null;
  const within = (found: Latency | null, p50: number, p95: number, p99: number) =>
    found === null || (found.p50 <= p50 && found.p95 <= p95 && found.p99 <= p99);
  return {
    id: 'P3',
    figures: {
      events_per_second: per_second,
      seconds: seconds(bench),
      load: load(),
      ...figures('a_http', http),
      ...(kafka ? figures('b_kafka', kafka) : { b_kafka: 'not run: no Java here' }),
    },
    ratios: {},
    bar,
    met: within(http, 4, 6, 15) && within(kafka, 8, 15, 40),
  };
}

function figures(name: string, found: Latency): Record<string, number> {
  return Object.fromEntries(Object.entries(found).map(([key, value]) => [`${name}_${key}`, value]));
}

const seconds = (bench: Bench): number =>
  bench.options.quick ? duration_seconds.quick : duration_seconds.full;

async function measure(bench: Bench, way: Way): Promise<Latency> {
  const kafka = way === 'kafka' ? await bench.kafka() : null;
  if (kafka) await createTopic(kafka.brokers);
  const database = await bench.database(`p3_${way}`);
  const hub = startHub(bench, {
    role: 'all',
    dsn: database.dsn,
    brokers: kafka?.brokers ?? null,
    name: `P3-${way}`,
    settings: { STREAMING_HUB_KAFKA_GROUP: `p3-${way}` },
  });
  const url = await hub.url();
  await subscribe(hub, database, hundredLanes(bench.receiver.ports));
  const sender = kafka ? kafkaSender(kafka.brokers) : httpSender(url);

  // The topic of the embedded stream is made by the first event.
  await sender.send(made(0));
  await run(bench, sender.send, warmUp_seconds * per_second);
  await resetStatements(bench, database);
  const roots = { hub: hub.pid, postgres: bench.postgres_pid };
  const before = cpuOf(roots);
  const count = seconds(bench) * per_second;
  const latencies_ms = await run(bench, sender.send, count);
  const after = cpuOf(roots);
  await noteStatements(bench, database, `P3-${way}`);
  const memory_mib = peakMemory_mib(hub.pid);
  await sender.close();
  await hub.stop();
  await database.drop();
  const { p50, p95, p99 } = percentiles(latencies_ms);
  const each = (name: 'hub' | 'postgres') =>
    Math.round((((after[name] ?? 0) - (before[name] ?? 0)) * 1e6) / count);
  return {
    p50: round(p50),
    p95: round(p95),
    p99: round(p99),
    max: round(Math.max(...latencies_ms)),
    hub_cpu_us: each('hub'),
    postgres_cpu_us: each('postgres'),
    memory_mib,
  };
}

/** Every event must arrive; the latencies of all of them. */
async function run(
  bench: Bench,
  send: (event: BenchEvent) => Promise<void>,
  count: number,
): Promise<number[]> {
  const armed = await bench.receiver.arm(count, {
    latency: true,
    timeout_ms: (count / per_second) * 1_000 + 60_000,
  });
  await pace(count, per_second, (n) => send(made(n)));
  await armed.reached;
  return (await bench.receiver.state()).latencies_ms;
}

function made(n: number): BenchEvent {
  return eventOf(tenants[n % tenants.length] as string, Math.floor(n / tenants.length));
}

interface OneByOne {
  send(event: BenchEvent): Promise<void>;
  close(): Promise<void>;
}

function httpSender(url: string): OneByOne {
  const pool = new Pool(url, { connections: 32 });
  return {
    async send({ attributes, body }) {
      const headers: Record<string, string> = {
        'content-type': 'application/json',
        'x-tenant-id': attributes['tenantid'] as string,
      };
      for (const [name, value] of Object.entries(attributes))
        if (name !== 'datacontenttype') headers[`ce-${name}`] = value;
      const answer = await pool.request({ path: '/v1/events', method: 'POST', headers, body });
      const text = await answer.body.text();
      if (answer.statusCode !== 202) throw new Error(`publishing failed: ${text}`);
    },
    close: () => pool.close(),
  };
}

function kafkaSender(brokers: readonly string[]): OneByOne {
  const publisher = kafkaPublisher(brokers);
  return { send: (event) => publisher.publish([event]), close: () => publisher.close() };
}
