import { createTestDatabase, type TestDatabase, until } from '@streaming-hub/testkit';
import type pg from 'pg';
import { uuidv7 } from 'uuidv7';
import { afterEach, beforeEach } from 'vitest';
import type { AttemptRequest, AttemptResult, Sink } from '../attempt/index.ts';
import { type Clock, systemClock } from '../base/index.ts';
import {
  readSubscriptionsByNumber,
  readSubscriptionsChangedSince,
} from '../subscriptions/snapshot.ts';
import { Dispatcher, type DispatcherOptions } from './dispatcher.ts';

/** Helpers of the tests in this folder: rows as ingest would write them, and a sink under control. */

export interface TestSubscription {
  readonly number: number;
  readonly lane_id: number;
  readonly tenant_id: string;
}

export async function addSubscription(
  pool: pg.Pool,
  parts: Partial<{
    tenant_id: string;
    address: string;
    ordering: string;
    hold_seconds: number | null;
    max_in_flight: number;
    retry_schedule_seconds: number[];
    allowed_rate_per_minute: number;
  }> = {},
): Promise<TestSubscription> {
  const tenant_id = parts.tenant_id ?? 'tenant-a';
  const address = parts.address ?? `http://127.0.0.1/${uuidv7()}`;
  const lane = await pool.query<{ id: number }>(
    `insert into lanes (tenant_id, kind, address) values ($1, 'webhook', $2)
     on conflict (tenant_id, kind, address) do update set address = excluded.address returning id`,
    [tenant_id, address],
  );
  const lane_id = lane.rows[0]?.id as number;
  const answer = await pool.query<{ number: number }>(
    `insert into subscriptions (id, tenant_id, kind, verification_state, destination, lane_id, event_types, format, ordering,
       hold_seconds, max_in_flight, retry_schedule_seconds, allowed_rate_per_minute, verification_method)
     values ($1, $2, 'webhook', 'active', $3, $4, '{*}', 'binary', $5, $6, $7, $8, $9, 'challenge') returning number`,
    [
      uuidv7(),
      tenant_id,
      JSON.stringify({ url: address }),
      lane_id,
      parts.ordering ?? 'fifo',
      parts.hold_seconds === undefined ? 30 : parts.hold_seconds,
      parts.max_in_flight ?? (parts.ordering === undefined || parts.ordering === 'fifo' ? 1 : 16),
      parts.retry_schedule_seconds ?? null,
      parts.allowed_rate_per_minute ?? null,
    ],
  );
  return { number: answer.rows[0]?.number as number, lane_id, tenant_id };
}

/** Stores `subjects.length` events, each matched to every subscription, as one ingest transaction; answers their ids. */
export async function addEvents(
  pool: pg.Pool,
  subscriptions: readonly TestSubscription[],
  subjects: readonly string[],
): Promise<string[]> {
  const ids = subjects.map(() => uuidv7());
  const client = await pool.connect();
  try {
    await client.query('begin');
    await client.query('select pg_advisory_xact_lock(1398096, 1)');
    const now = await client.query<{ base: number }>(
      `select greatest((extract(epoch from clock_timestamp()) * 1000000)::bigint, (select coalesce(max(seq_to), 0) + 1 from batch_log)) as base`,
    );
    const base = Number(now.rows[0]?.base);
    const tenant_id = subscriptions[0]?.tenant_id ?? 'tenant-a';
    await client.query(
      `insert into event_inbox (tenant_id, ce_id, seq, origin, event_type, attributes, body)
       select $1, id, $2 + n - 1, 'midaz', 'account.created', json_build_object('id', id, 'subject', subject), convert_to('{"n":1}', 'UTF8')
       from unnest($3::uuid[], $4::text[]) with ordinality u(id, subject, n)`,
      [tenant_id, base, ids, subjects],
    );
    for (const subscription of subscriptions) {
      await client.query(
        `insert into deliveries (lane_id, seq, subscription_number, tenant_id, ce_id)
         select $1, $2 + n - 1, $3, $4, id from unnest($5::uuid[]) with ordinality u(id, n)`,
        [subscription.lane_id, base, subscription.number, tenant_id, ids],
      );
    }
    await client.query('insert into batch_log (seq_from, seq_to, lanes) values ($1, $2, $3)', [
      base,
      base + ids.length - 1,
      [...new Set(subscriptions.map((subscription) => subscription.lane_id))],
    ]);
    await client.query(`select pg_notify('hub_ingested', '')`);
    await client.query('commit');
  } finally {
    client.release();
  }
  return ids;
}

const timings = { dns_ms: null, connect_ms: null, tls_ms: null, first_byte_ms: 1, total_ms: 1 };

export const delivered: AttemptResult = {
  outcome: 'delivered',
  blame: null,
  status: 200,
  error: null,
  response_excerpt: null,
  retry_after_seconds: null,
  timings,
};

export const failed: AttemptResult = {
  ...delivered,
  outcome: 'failed',
  blame: 'receiver',
  status: 500,
  error: { code: 'status', message: 'The destination answered 500.' },
};

/** A sink that does what `behave` says and remembers what it was asked, in order. */
export function scriptedSink(
  behave: (request: AttemptRequest, signal: AbortSignal) => AttemptResult | Promise<AttemptResult>,
) {
  const requests: AttemptRequest[] = [];
  const sink: Sink = {
    async attempt(request, signal) {
      requests.push(request);
      return behave(request, signal);
    },
    async probe() {
      return { verified: true, reason: 'test', allowed_rate_per_minute: null };
    },
    async close() {},
  };
  return { sink, requests, ids: () => requests.map((request) => request.event.id) };
}

export function dispatcherOn(
  pool: pg.Pool,
  connection: pg.ClientConfig,
  sink: Sink,
  options: Partial<DispatcherOptions> = {},
): Dispatcher {
  return new Dispatcher({
    pool,
    connection,
    subscriptions: {
      byNumber: (numbers) => readSubscriptionsByNumber(pool, numbers),
      changedSince: (version) => readSubscriptionsChangedSince(pool, version),
    },
    sinks: { webhook: sink },
    secrets: () => ['whsec_dGVzdA=='],
    schedule_seconds: [0, 0.05, 0.05],
    poison_threshold: 5,
    clock: systemClock,
    random: Math.random,
    newId: uuidv7,
    onAttempt: () => {},
    onEnd: () => {},
    onFault: (fault) =>
      process.env['SHOW_FAULTS'] &&
      process.stderr.write(`${fault.stack} ${String((fault.cause as Error)?.stack)}\n`),
    process_id: uuidv7(),
    role: 'all',
    workers: 8,
    claim_batch: 16,
    idle_interval_ms: 250,
    lease_ms: 3_000,
    drain_ms: 2_000,
    ...options,
  });
}

/** A destination that never answers: the attempt ends when the hub cuts it off. */
export function hanging(signal: AbortSignal): Promise<AttemptResult> {
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(failed)));
}

/** A monotonic clock that runs `factor` times as fast; leases must be long enough for that. */
export function hurriedClock(factor: number): Clock {
  return { ...systemClock, monotonic_ms: () => systemClock.monotonic_ms() * factor };
}

/** The pool, but each statement goes through `meddle`, which is told its name or else its text. */
export function meddledPool(
  pool: pg.Pool,
  meddle: (statement: string, run: () => Promise<unknown>) => Promise<unknown>,
): pg.Pool {
  const query = (config: { name?: string; text?: string } | string, ...rest: unknown[]) =>
    meddle(typeof config === 'string' ? config : (config.name ?? config.text ?? ''), () =>
      (pool.query as (...all: unknown[]) => Promise<unknown>).call(pool, config, ...rest),
    );
  return new Proxy(pool, {
    get: (target, key) => (key === 'query' ? query : Reflect.get(target, key)) as unknown,
  });
}

/** For the top of a test file: each test has a database of its own, and its dispatchers are stopped. */
export function useLanes() {
  let database: TestDatabase;
  let versionSeen = 0;
  const running: Dispatcher[] = [];
  beforeEach(async () => {
    database = await createTestDatabase();
    versionSeen = 0;
  });
  afterEach(async () => {
    await Promise.all(running.splice(0).map((dispatcher) => dispatcher.stop()));
    await database.drop();
  });
  const count = async (from: string): Promise<number> => {
    const answer = await database.pool.query<{ n: number }>(
      `select count(*)::int as n from ${from}`,
    );
    return answer.rows[0]?.n ?? 0;
  };
  return {
    get database() {
      return database;
    },
    get pool() {
      return database.pool;
    },
    count,
    async start(
      sink: Sink,
      options: Partial<DispatcherOptions> = {},
      pool = database.pool,
    ): Promise<Dispatcher> {
      const dispatcher = dispatcherOn(pool, database.config, sink, {
        subscriptions: {
          byNumber: (numbers) => readSubscriptionsByNumber(pool, numbers),
          async changedSince(version) {
            const changed = await readSubscriptionsChangedSince(pool, version);
            versionSeen = Math.max(versionSeen, ...changed.map((each) => each.version));
            return changed;
          },
        },
        ...options,
      });
      running.push(dispatcher);
      await dispatcher.start();
      return dispatcher;
    },
    /** Changes subscriptions, and waits until the dispatcher has been told. */
    async change(assignments: string, number?: number): Promise<void> {
      await database.pool.query(
        `update subscriptions set ${assignments} where $1::int is null or number = $1`,
        [number ?? null],
      );
      const newest = await database.pool.query<{ version: string }>(
        'select max(version) as version from subscriptions',
      );
      await until(() => versionSeen >= Number(newest.rows[0]?.version));
    },
    /** Writes rows of `retries`, due at once, for everything in the log. */
    async addRetries(reason: string, attempts: number): Promise<void> {
      await database.pool.query(
        `insert into retries (lane_id, seq, subscription_number, tenant_id, ce_id, shard, state, attempts, due_at, reason)
         select lane_id, seq, subscription_number, tenant_id, ce_id, lane_id % 64, 'scheduled', $2, now(), $1 from deliveries`,
        [reason, attempts],
      );
    },
  };
}

/** Lets pass what would happen at once if it happened at all. */
export function aWhile(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 250));
}
