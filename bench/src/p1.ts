import { type BareReport } from './bare/child.ts';
import { cpuOf, runBare } from './bare/run.ts';
import type { Bench, BenchDatabase } from './environment.ts';
import { median, percentiles, type Result, round } from './figures.ts';
import { startHub } from './hub.ts';
import { load } from './machine.ts';
import { peakMemory_mib } from './processes.ts';
import { hundredLanes, seedBacklog, untilSql } from './seed.ts';
import { noteStatements, resetStatements } from './statements.ts';

/** P1: drain a backlog, against a loop that stores nothing and a queue that does nothing else. */
const size = { full: 100_000, quick: 10_000 };
const in_flight = 128;
const bar =
  '>= 0.8 x the queue loop in deliveries/s and >= 0.5 x the bare loop per CPU second of the hub';

interface Drain {
  readonly per_second: number;
  readonly hub_cpu_us: number;
  readonly postgres_cpu_us: number;
  readonly receiver_cpu_us: number;
  readonly memory_mib: number;
}

export async function p1(bench: Bench): Promise<Result> {
  const count = bench.options.quick ? size.quick : size.full;
  const database = await bench.database('p1');
  await seedBacklog(bench, database, count, hundredLanes(bench.receiver.ports));
  const bare: BareReport[] = [];
  const queues: (BareReport & { postgres_cpu_us: number })[] = [];
  const drains: Drain[] = [];
  for (let n = 0; n < bench.options.repeat; n += 1) {
    bare.push(await bareLoop(bench, count));
    drains.push(await drain(bench, database, count));
    queues.push(await queueLoop(bench, database, count));
  }
  const durations = await attemptDurations_ms(database);
  await database.drop();
  const hub = (read: (drain: Drain) => number) => median(drains.map(read));
  const a = median(bare.map((run) => run.count / run.seconds));
  const b = median(queues.map((run) => run.count / run.seconds));
  const ratios = {
    rate_to_queue_loop: round(
      median(drains.map((run, n) => run.per_second / rate(queues[n] as BareReport))),
    ),
    rate_to_bare_loop: round(
      median(drains.map((run, n) => run.per_second / rate(bare[n] as BareReport))),
    ),
    cpu_to_bare_loop: round(
      median(drains.map((run, n) => cpu_us(bare[n] as BareReport) / run.hub_cpu_us)),
    ),
  };
  return {
    id: 'P1',
    figures: {
      deliveries: count,
      runs: bench.options.repeat,
      load: load(),
      hub_per_second: Math.round(hub((run) => run.per_second)),
      hub_cpu_us: round(
        hub((run) => run.hub_cpu_us),
        1,
      ),
      postgres_cpu_us: round(
        hub((run) => run.postgres_cpu_us),
        1,
      ),
      receiver_cpu_us: round(
        hub((run) => run.receiver_cpu_us),
        1,
      ),
      hub_memory_mib: hub((run) => run.memory_mib),
      attempt_p50_ms: durations.p50,
      attempt_p95_ms: durations.p95,
      attempt_p99_ms: durations.p99,
      bare_loop_per_second: Math.round(a),
      bare_loop_cpu_us: round(median(bare.map(cpu_us)), 1),
      queue_loop_per_second: Math.round(b),
      queue_loop_cpu_us: round(median(queues.map(cpu_us)), 1),
      queue_loop_postgres_cpu_us: round(median(queues.map((run) => run.postgres_cpu_us)), 1),
    },
    ratios,
    bar,
    met: ratios.rate_to_queue_loop >= 0.8 && ratios.cpu_to_bare_loop >= 0.5,
  };
}

const rate = (run: BareReport): number => run.count / run.seconds;
const cpu_us = (run: BareReport): number => (run.cpu_seconds * 1e6) / run.count;

function bareLoop(bench: Bench, count: number): Promise<BareReport> {
  return runBare('send', { ports: bench.receiver.ports, count, in_flight, path: '/hook' });
}

/** A hub that only delivers starts on the backlog; what counts is from its first request to its last. */
async function drain(bench: Bench, database: BenchDatabase, count: number): Promise<Drain> {
  await database.pool.query('truncate delivery_attempts');
  await database.pool.query('update lanes set settled_through = 0');
  await resetStatements(bench, database);
  const armed = await bench.receiver.arm(count);
  const hub = startHub(bench, { role: 'delivery', dsn: database.dsn, brokers: null, name: 'P1' });
  await armed.first;
  const roots = { hub: hub.pid, postgres: bench.postgres_pid, receiver: bench.receiver.pid };
  const before = cpuOf(roots);
  const started_ms = performance.now();
  await armed.reached;
  const seconds = (performance.now() - started_ms) / 1000;
  // The outcomes of the last requests are on their way into the database.
  await new Promise((resolve) => setTimeout(resolve, 100));
  const after = cpuOf(roots);
  await untilSql(
    database,
    10_000,
    `select count(*) as reached, ${count} as wanted from delivery_attempts where outcome = 'delivered'`,
  );
  await noteStatements(bench, database, 'P1');
  const memory_mib = peakMemory_mib(hub.pid);
  await hub.stop();
  const each = (name: keyof typeof roots) =>
    (((after[name] ?? 0) - (before[name] ?? 0)) * 1e6) / count;
  return {
    per_second: count / seconds,
    hub_cpu_us: each('hub'),
    postgres_cpu_us: each('postgres'),
    receiver_cpu_us: each('receiver'),
    memory_mib,
  };
}

async function queueLoop(bench: Bench, database: BenchDatabase, count: number) {
  await database.pool.query(/* sql */ `
    drop table if exists bench_jobs;
    create table bench_jobs (id bigint generated always as identity primary key, tenant_id text not null,
      ce_id uuid not null, state smallint not null default 0, next_at timestamptz not null default now(),
      lease_until timestamptz, attempts integer not null default 0, status integer, finished_at timestamptz);
    insert into bench_jobs (tenant_id, ce_id) select tenant_id, ce_id from deliveries order by seq;
    create index on bench_jobs (next_at, id) where state = 0`);
  await database.pool.query('vacuum (analyze) bench_jobs');
  const given = {
    dsn: database.dsn,
    ports: bench.receiver.ports,
    count,
    loops: 4,
    batch: 200,
    in_flight,
  };
  const run = await runBare('queue', given, { postgres: bench.postgres_pid });
  if (run.count !== count) throw new Error(`the queue loop sent ${run.count} of ${count}`);
  await database.pool.query('drop table bench_jobs');
  return { ...run, postgres_cpu_us: ((run.others_cpu_seconds['postgres'] ?? 0) * 1e6) / count };
}

async function attemptDurations_ms(database: BenchDatabase) {
  const answer = await database.pool.query<{ duration_us: number }>(
    'select duration_us from delivery_attempts',
  );
  const { p50, p95, p99 } = percentiles(answer.rows.map((row) => row.duration_us / 1000));
  return { p50: round(p50), p95: round(p95), p99: round(p99) };
}
