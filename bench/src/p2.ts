import { type BareReport } from './bare/child.ts';
import { cpuOf, runBare } from './bare/run.ts';
import type { Bench, BenchDatabase } from './environment.ts';
import { median, type Result, round } from './figures.ts';
import { startHub } from './hub.ts';
import { load } from './machine.ts';
import { peakMemory_mib } from './processes.ts';
import {
  createTopic,
  httpPublisher,
  hundredLanes,
  kafkaPublisher,
  publishMany,
  subscribe,
  untilSql,
} from './seed.ts';
import { noteStatements, resetStatements } from './statements.ts';

/** P2: records of the stream become stored events with their deliveries. */
const size = { full: 200_000, quick: 20_000 };
const bar = '>= 0.25 x the bare consumer per CPU second, Postgres included; >= 10 000 events/s';

interface Run {
  readonly per_second: number;
  readonly hub_cpu_us: number;
  readonly postgres_cpu_us: number;
  readonly stream_cpu_us: number;
  readonly memory_mib: number;
}

export async function p2(bench: Bench): Promise<Result> {
  const count = bench.options.quick ? size.quick : size.full;
  const kafka = await bench.kafka();
  const runs: Run[] = [];
  const consumers: BareReport[] = [];
  const inserts: (BareReport & { postgres_cpu_us: number })[] = [];
  if (kafka) {
    await createTopic(kafka.brokers);
    const publisher = kafkaPublisher(kafka.brokers);
    await publishMany(publisher, count);
    await publisher.close();
  }
  for (let n = 0; n < bench.options.repeat; n += 1) {
    if (kafka)
      consumers.push(
        await runBare('consume', { brokers: kafka.brokers, count, group: `bare-${n}` }),
      );
    const database = await bench.database(`p2_${n}`);
    runs.push(await ingest(bench, database, count, kafka, n));
    const run = await runBare(
      'insert',
      { dsn: database.dsn, count, batch: 500, writers: 2 },
      { postgres: bench.postgres_pid },
    );
    inserts.push({
      ...run,
      postgres_cpu_us: ((run.others_cpu_seconds['postgres'] ?? 0) * 1e6) / count,
    });
    await database.drop();
  }
  const whole = (run: Run) => run.hub_cpu_us + run.postgres_cpu_us;
  const hub = (read: (run: Run) => number) => round(median(runs.map(read)), 1);
  const ratio = consumers.map((consumer, n) => cpu_us(consumer) / whole(runs[n] as Run));
  const ratios = {
    ...(kafka && { cpu_to_bare_consumer: round(median(ratio), 3) }),
    cpu_to_bare_insert: round(
      median(inserts.map((run, n) => (cpu_us(run) + run.postgres_cpu_us) / whole(runs[n] as Run))),
    ),
  };
  const per_second = Math.round(hub((run) => run.per_second));
  return {
    id: 'P2',
    figures: {
      stream: kafka ? 'kafka' : 'embedded (no Java here)',
      events: count,
      runs: bench.options.repeat,
      load: load(),
      hub_per_second: per_second,
      hub_cpu_us: hub((run) => run.hub_cpu_us),
      postgres_cpu_us: hub((run) => run.postgres_cpu_us),
      stream_cpu_us: hub((run) => run.stream_cpu_us),
      hub_memory_mib: hub((run) => run.memory_mib),
      ...(kafka && {
        bare_consumer_per_second: Math.round(
          median(consumers.map((run) => run.count / run.seconds)),
        ),
        bare_consumer_cpu_us: round(median(consumers.map(cpu_us)), 1),
      }),
      bare_insert_per_second: Math.round(median(inserts.map((run) => run.count / run.seconds))),
      bare_insert_cpu_us: round(median(inserts.map(cpu_us)), 1),
      bare_insert_postgres_cpu_us: round(median(inserts.map((run) => run.postgres_cpu_us)), 1),
    },
    ratios,
    bar,
    met: (ratios.cpu_to_bare_consumer ?? 1) >= 0.25 && per_second >= 10_000,
  };
}

const cpu_us = (run: BareReport): number => (run.cpu_seconds * 1e6) / run.count;

/** A hub that only ingests, on a stream that is full: from the first stored record to the last. */
async function ingest(
  bench: Bench,
  database: BenchDatabase,
  count: number,
  kafka: { brokers: string[]; pid: number | null } | null,
  n: number,
): Promise<Run> {
  const start = (name: string, group: string) =>
    startHub(bench, {
      role: 'ingest',
      dsn: database.dsn,
      brokers: kafka?.brokers ?? null,
      name,
      settings: { STREAMING_HUB_KAFKA_GROUP: group },
    });
  // Subscriptions are made while the records are of no interest: on the embedded stream a hub whose
  // consumer has another group fills it as well.
  const preparing = startHub(bench, {
    role: 'delivery',
    dsn: database.dsn,
    brokers: kafka?.brokers ?? null,
    name: 'P2-prepare',
  });
  const url = await preparing.url();
  await subscribe(preparing, database, hundredLanes(bench.receiver.ports));
  if (!kafka) {
    const publisher = httpPublisher(url);
    await publishMany(publisher, count);
    await publisher.close();
  }
  await preparing.stop();
  await resetStatements(bench, database);

  const hub = start('P2', `p2-${n}`);
  await untilSql(
    database,
    60_000,
    `select count(*) as reached, 1 as wanted from stream_positions`,
    5,
  );
  const roots = {
    hub: hub.pid,
    postgres: bench.postgres_pid,
    stream: kafka?.pid ?? bench.postgres_pid,
  };
  const before = cpuOf(roots);
  const stored_before = await stored(database);
  const started_ms = performance.now();
  await untilSql(
    database,
    240_000,
    `select sum(next_offset) as reached, ${count} as wanted from stream_positions`,
    20,
  );
  const seconds = (performance.now() - started_ms) / 1000;
  const after = cpuOf(roots);
  const memory_mib = peakMemory_mib(hub.pid);
  await untilSql(database, 1_000, `select count(*) as reached, ${count} as wanted from deliveries`);
  await noteStatements(bench, database, 'P2');
  await hub.stop();
  const measured = count - stored_before;
  const each = (name: keyof typeof roots) =>
    (((after[name] ?? 0) - (before[name] ?? 0)) * 1e6) / measured;
  return {
    per_second: measured / seconds,
    hub_cpu_us: each('hub'),
    postgres_cpu_us: each('postgres'),
    stream_cpu_us: kafka ? each('stream') : 0,
    memory_mib,
  };
}

async function stored(database: BenchDatabase): Promise<number> {
  const answer = await database.pool.query<{ n: number }>(
    'select coalesce(sum(next_offset), 0)::int as n from stream_positions',
  );
  return answer.rows[0]?.n ?? 0;
}
