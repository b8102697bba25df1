import { type BareReport } from './bare/child.ts';
import { cpuOf, runBare } from './bare/run.ts';
import type { Bench, BenchDatabase } from './environment.ts';
import { eventOf } from './events.ts';
import { median, type Result, round } from './figures.ts';
import { startHub } from './hub.ts';
import { load } from './machine.ts';
import { type Publisher, seedBacklog } from './seed.ts';

/** P11: one destination in strict order, answered after a millisecond, against a loop that sends one by one. */
const size = { full: 5_000, quick: 1_000 };
const path = '/delay/1/hook';
const bar = '>= 0.7 x the serial loop';

export async function p11(bench: Bench): Promise<Result> {
  const count = bench.options.quick ? size.quick : size.full;
  const database = await bench.database('p11');
  const url = `http://127.0.0.1:${bench.receiver.ports[0]}${path}`;
  const plan = { tenant_id: 'tenant-0', url, type: '*', ordering: 'fifo' as const };
  await seedBacklog(bench, database, count, [plan], (publisher) => publishAll(publisher, count));
  const serial: BareReport[] = [];
  const lanes: { per_second: number; hub_cpu_us: number }[] = [];
  for (let n = 0; n < bench.options.repeat; n += 1) {
    const ports = bench.receiver.ports.slice(0, 1);
    serial.push(await runBare('send', { ports, count, in_flight: 1, path }));
    lanes.push(await drain(bench, database, count));
  }
  await database.drop();
  const rate = (run: BareReport) => run.count / run.seconds;
  const ratio = round(
    median(lanes.map((lane, n) => lane.per_second / rate(serial[n] as BareReport))),
  );
  return {
    id: 'P11',
    figures: {
      deliveries: count,
      runs: bench.options.repeat,
      load: load(),
      lane_per_second: Math.round(median(lanes.map((lane) => lane.per_second))),
      hub_cpu_us: round(median(lanes.map((lane) => lane.hub_cpu_us)), 1),
      serial_loop_per_second: Math.round(median(serial.map(rate))),
    },
    ratios: { rate_to_serial_loop: ratio },
    bar,
    met: ratio >= 0.7,
  };
}

async function publishAll(publisher: Publisher, count: number): Promise<void> {
  for (let n = 0; n < count; n += 500)
    await publisher.publish(
      Array.from({ length: Math.min(500, count - n) }, () => eventOf('tenant-0', 0)),
    );
}

async function drain(bench: Bench, database: BenchDatabase, count: number) {
  await database.pool.query('truncate delivery_attempts');
  await database.pool.query('update lanes set settled_through = 0');
  const armed = await bench.receiver.arm(count, { timeout_ms: 120_000 });
  const hub = startHub(bench, { role: 'delivery', dsn: database.dsn, brokers: null, name: 'P11' });
  await armed.first;
  const before = cpuOf({ hub: hub.pid });
  const started_ms = performance.now();
  await armed.reached;
  const seconds = (performance.now() - started_ms) / 1000;
  const after = cpuOf({ hub: hub.pid });
  await hub.stop();
  const cpu_seconds = (after['hub'] ?? 0) - (before['hub'] ?? 0);
  return { per_second: count / seconds, hub_cpu_us: (cpu_seconds * 1e6) / count };
}
