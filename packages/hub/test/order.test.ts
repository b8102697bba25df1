import { createTestDatabase, type TestDatabase, until } from '@streaming-hub/testkit';
import type pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Dispatcher, freeLeftLeases } from '../src/lanes/index.ts';
import {
  addEvents,
  addSubscription,
  delivered,
  dispatcherOn,
  failed,
  type TestSubscription,
} from '../src/lanes/testing.ts';
import { openPool } from '../src/store/index.ts';

/**
 * Dispatchers that are started, stopped and killed at random on one database, subscriptions that
 * are switched off and on, a receiver that fails and dawdles at random, events that arrive
 * meanwhile. Whatever happens, nothing is lost, and what is ordered succeeds in order.
 * `ORDER_SEEDS=from-to` runs others.
 */
const [seedFrom = 1, seedTo = 20] = (process.env['ORDER_SEEDS'] ?? '1-20').split('-').map(Number);
const seeds = Array.from({ length: seedTo - seedFrom + 1 }, (_, n) => seedFrom + n);
const lease_ms = 400;
const dispatchers_max = 3;
const kills_max = 3;
const rounds = 5;
const eventsPerRound = 4;
const subjects = ['a', 'b', 'c'];
const schedule_seconds = Array.from({ length: 12 }, () => 0.03);

let database: TestDatabase;
/** Dispatchers whose end is not waited for before the very end. */
const abandoned: Promise<void>[] = [];

beforeAll(async () => {
  database = await createTestDatabase();
});
afterAll(async () => {
  await Promise.all(abandoned);
  await database.drop();
}, 30_000);

/** Mulberry32. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

interface Lane {
  readonly subscription: TestSubscription;
  readonly ordering: string;
  readonly expected: { readonly id: string; readonly subject: string }[];
  /** Ids in the order of their first success. */
  readonly arrived: string[];
}

class World {
  readonly #random: () => number;
  readonly #lanes: Lane[] = [];
  readonly #running: { dispatcher: Dispatcher; stop(): Promise<void>; kill(): void }[] = [];
  #kills = 0;

  constructor(seed: number) {
    this.#random = randomFrom(seed);
  }

  async run(): Promise<void> {
    await freeLeftLeases(database.pool);
    for (const ordering of ['fifo', 'fifo', 'keyed', 'keyed', 'unordered']) {
      const subscription = await addSubscription(database.pool, {
        ordering,
        hold_seconds: null,
        retry_schedule_seconds: schedule_seconds,
        tenant_id: `tenant-${Math.floor(this.#random() * 2)}`,
      });
      this.#lanes.push({ subscription, ordering, expected: [], arrived: [] });
    }
    await this.#start();
    for (let round = 0; round < rounds; round += 1) {
      await Promise.all(this.#lanes.map((lane) => this.#add(lane)));
      await this.#act();
      await pause(this.#random() * 60);
    }
    if (this.#running.length === 0) await this.#start();
    await this.#enable(true, this.#lanes);
    await until(() => this.#lanes.every((lane) => lane.arrived.length === lane.expected.length));
    await Promise.all(this.#running.map((one) => one.stop()));
  }

  async #add(lane: Lane): Promise<void> {
    const chosen = Array.from({ length: eventsPerRound }, () => this.#pick(subjects));
    const ids = await addEvents(database.pool, [lane.subscription], chosen);
    lane.expected.push(...ids.map((id, n) => ({ id, subject: chosen[n] ?? '' })));
  }

  async #act(): Promise<void> {
    const dice = this.#random();
    await this.#enable(this.#random() < 0.7, [this.#pick(this.#lanes)]);
    const index = Math.floor(this.#random() * this.#running.length);
    if (dice < 0.4 && this.#running.length < dispatchers_max) return this.#start();
    if (dice < 0.6) {
      // Not waited for: the others go on meanwhile.
      const [leaving] = this.#running.splice(index, 1);
      if (leaving) abandoned.push(leaving.stop());
    } else if (dice < 0.85 && this.#kills < kills_max) {
      this.#kills += 1;
      const [killed] = this.#running.splice(index, 1);
      killed?.kill();
    }
    if (this.#running.length === 0) await this.#start();
  }

  async #enable(enabled: boolean, lanes: readonly Lane[]): Promise<void> {
    await database.pool.query(
      'update subscriptions set enabled = $1 where number = any($2) and enabled <> $1',
      [enabled, lanes.map((lane) => lane.subscription.number)],
    );
  }

  async #start(): Promise<void> {
    const life = { over: false };
    const pool = openPool(database.config, { application_name: 'order', max: 4 });
    const sink = {
      attempt: async ({ event, subscription }: Parameters<typeof this.answer>[0]) => {
        await pause(this.#random() < 0.05 ? 100 : this.#random() * 12);
        // A process that was killed on the way: half of its requests have arrived all the same.
        if (life.over && this.#random() < 0.5) return new Promise<never>(() => {});
        const result = this.answer({ event, subscription });
        return life.over ? new Promise<never>(() => {}) : result;
      },
      probe: async () => ({ verified: true, reason: 'test', allowed_rate_per_minute: null }),
      close: async () => {},
    };
    const dispatcher = dispatcherOn(mortal(pool, life), database.config, sink, {
      lease_ms,
      drain_ms: 1_000,
      idle_interval_ms: 50,
    });
    const stop = async () => {
      await dispatcher.stop();
      await pool.end();
    };
    const kill = () => {
      life.over = true;
      abandoned.push(stop());
    };
    this.#running.push({ dispatcher, stop, kill });
    await dispatcher.start();
  }

  answer({
    event,
    subscription,
  }: {
    event: { readonly id: string };
    subscription: { readonly number: number };
  }) {
    if (this.#random() < 0.2) return failed;
    const lane = this.#lanes.find((one) => one.subscription.number === subscription.number);
    if (lane && !lane.arrived.includes(event.id)) lane.arrived.push(event.id);
    return delivered;
  }

  /** Lines whose first successes came in another order than their events. */
  disorder(): string[] {
    return this.#lanes.flatMap((lane) => {
      if (lane.ordering === 'unordered') return [];
      const lines = lane.ordering === 'fifo' ? [null] : subjects;
      return lines.flatMap((subject) => {
        const wanted = lane.expected.filter((one) => subject === null || one.subject === subject);
        const ids = wanted.map((one) => one.id);
        const came = lane.arrived.filter((id) => ids.includes(id));
        return came.join() === ids.join() ? [] : [`${lane.ordering} ${subject ?? ''}`];
      });
    });
  }

  /** For whoever reads the failure. */
  async explain(): Promise<void> {
    for (const { subscription, ordering, expected, arrived } of this.#lanes) {
      const missing = expected.filter((one) => !arrived.includes(one.id)).map((one) => one.id);
      process.stderr.write(
        `lane ${subscription.lane_id} (${ordering}): ${missing.length} of ${expected.length} missing\n`,
      );
      for (const text of [
        'select l.settled_through, s.* from lanes l join shards s on s.shard = l.shard where l.id = $1 and $2::uuid[] is not null',
        'select enabled, version, verification_state from subscriptions where lane_id = $1 and $2::uuid[] is not null',
        'select d.seq, r.state, r.attempts, r.due_at - now() as due, r.reason, u.crashes, u.started from deliveries d left join retries r using (lane_id, seq, subscription_number) left join suspects u using (lane_id, seq, subscription_number) where d.lane_id = $1 and d.ce_id = any($2) order by d.seq limit 8',
      ]) {
        if (missing.length === 0) continue;
        const answer = await database.pool.query<object>(text, [subscription.lane_id, missing]);
        process.stderr.write(`${answer.rows.map((row) => JSON.stringify(row)).join('\n')}\n`);
      }
    }
    const activity = await database.pool.query<object>(
      `select application_name, state, wait_event_type, wait_event, now() - query_start as since, left(query, 120) as query
       from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`,
    );
    process.stderr.write(`${activity.rows.map((row) => JSON.stringify(row)).join('\n')}\n`);
    for (const { dispatcher } of this.#running)
      process.stderr.write(`${JSON.stringify(dispatcher.stats())}\n`);
  }

  #pick<T>(items: readonly T[]): T {
    return items[Math.floor(this.#random() * items.length)] as T;
  }
}

/** After the end of its life nothing that it asks for is carried out. */
function mortal(pool: pg.Pool, life: { over: boolean }): pg.Pool {
  const query = async (...all: unknown[]) => {
    if (life.over) throw new Error('this process is dead');
    const answer = await (pool.query as (...rest: unknown[]) => Promise<unknown>)(...all);
    if (life.over) throw new Error('this process is dead');
    return answer;
  };
  return new Proxy(pool, {
    get: (target, key) => (key === 'query' ? query : Reflect.get(target, key)) as unknown,
  });
}

const pause = (duration_ms: number) => new Promise((resolve) => setTimeout(resolve, duration_ms));

test(
  `nothing is lost and order holds, ${seeds.length} random histories`,
  async () => {
    for (const seed of seeds) {
      const world = new World(seed);
      await world.run().catch(async (error: unknown) => {
        await world.explain();
        throw new Error(`seed ${seed}: not everything was delivered`, { cause: error });
      });
      expect({ seed, disorder: world.disorder() }).toEqual({ seed, disorder: [] });
    }
    const left = await database.pool.query<{ what: string; n: number }>(`
    select 'dead letters' as what, count(*)::int as n from dead_letters
    union all select 'retries', count(*)::int from retries
    union all select 'suspects', count(*)::int from suspects
    union all select 'deliveries without an end', count(*)::int from deliveries d where not exists (
      select 1 from delivery_attempts a where a.lane_id = d.lane_id and a.seq = d.seq and a.final)`);
    expect(left.rows.filter((row) => row.n > 0)).toEqual([]);
  },
  20_000 + seeds.length * 5_000,
);
