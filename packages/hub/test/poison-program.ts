import type pg from 'pg';
import type { Sink } from '../src/attempt/index.ts';
import { freeLeftLeases } from '../src/lanes/index.ts';
import { delivered, dispatcherOn, failed } from '../src/lanes/testing.ts';
import { openPool } from '../src/store/index.ts';

/**
 * A process that delivers, and dies at once when it tries an event whose subject is `poison`, or
 * tries one again whose subject is `poison later`. Outcomes are stored late, so that a crash finds
 * some that are answered and not yet durable.
 */
const storedLate_ms = 30;
const attempt_ms = 20;

const dsn = process.argv[2] ?? '';
const config: pg.PoolConfig = { connectionString: dsn };
const pool = openPool(config, { application_name: 'poison', max: 4 });
const query = pool.query.bind(pool) as (...all: unknown[]) => Promise<unknown>;
const lateNames = ['record-changes', 'append-delivered'];
Object.assign(pool, {
  async query(statement: { name?: string }, ...rest: unknown[]) {
    if (lateNames.includes(statement.name ?? ''))
      await new Promise((resolve) => setTimeout(resolve, storedLate_ms));
    return query(statement, ...rest);
  },
});

const sink: Sink = {
  async attempt({ event, attempt }) {
    const { subject } = event.attributes;
    if (subject === 'poison later' && attempt === 1) return failed;
    if (subject?.startsWith('poison')) process.kill(process.pid, 'SIGKILL');
    await new Promise((resolve) => setTimeout(resolve, attempt_ms));
    return delivered;
  },
  async probe() {
    return { verified: true, reason: 'test', allowed_rate_per_minute: null };
  },
  async close() {},
};

await freeLeftLeases(pool);
const dispatcher = dispatcherOn(pool, config, sink, {
  poison_threshold: Number(process.argv[3]),
});
await dispatcher.start();
process.once('SIGTERM', () => {
  void dispatcher
    .stop()
    .then(() => pool.end())
    .then(() => process.exit(0));
});
