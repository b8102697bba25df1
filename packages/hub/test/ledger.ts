import { type HubProcess, type Receiver, startReceiver } from '@streaming-hub/testkit';
import type pg from 'pg';
import { type Arrivals, reckon, type TestEvent, type Wanted } from './workload.ts';

/** What arrived, what was answered, and what it comes to at the end. */

export interface Ledger {
  readonly receiver: Receiver;
  /** Deliveries answered with 2xx, in order. */
  readonly accepted: { readonly path: string; readonly id: string }[];
  /** Deliveries begun and not answered yet. */
  readonly open: number;
  /** Different deliveries answered with 2xx. */
  distinct(): number;
  reckon(wanted: readonly Wanted[], events: readonly TestEvent[]): Arrivals;
}

export interface LedgerOptions {
  /** Share of attempts answered with 500. */
  readonly fails?: number;
  /** Before the answer, milliseconds. */
  readonly delay_ms?: (path: string) => number;
}

export async function openLedger(options: LedgerOptions = {}): Promise<Ledger> {
  const accepted: { path: string; id: string }[] = [];
  const distinct = new Set<string>();
  let open = 0;
  const receiver = await startReceiver({
    records: false,
    behaviour: (request, response) => {
      const path = request.url ?? '';
      const id = String(request.headers['webhook-id']);
      const isFailure = Math.random() < (options.fails ?? 0);
      open += 1;
      const answer = () => {
        open -= 1;
        response.writeHead(isFailure ? 500 : 200).end();
        if (isFailure) return;
        accepted.push({ path, id });
        distinct.add(`${path} ${id}`);
      };
      const delay_ms = options.delay_ms?.(path) ?? 0;
      if (delay_ms > 0) setTimeout(answer, delay_ms);
      else answer();
    },
  });
  return {
    receiver,
    accepted,
    get open() {
      return open;
    },
    distinct: () => distinct.size,
    reckon: (wanted, events) => reckon(wanted, events, accepted),
  };
}

export interface Readiness {
  readonly status: number;
  readonly state: string;
  /** Names of the checks that failed. */
  readonly failing: readonly string[];
}

/** Asks `/readyz` again and again; remembers each answer that differs from the one before. */
export function watchReadiness(hub: HubProcess) {
  const answers: Readiness[] = [];
  let watching = true;
  const done = (async () => {
    while (watching) {
      const answer = await hub.request('GET', '/readyz').catch(() => null);
      if (answer) {
        const seen = readinessOf(answer);
        if (JSON.stringify(seen) !== JSON.stringify(answers.at(-1))) answers.push(seen);
      }
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  })();
  return {
    answers,
    async stop() {
      watching = false;
      await done;
    },
  };
}

export function readinessOf(answer: { status: number; body: Record<string, unknown> }): Readiness {
  const checks = (answer.body['checks'] ?? []) as { name: string; ok: boolean }[];
  const failing = checks.filter((check) => !check.ok).map((check) => check.name);
  return { status: answer.status, state: String(answer.body['status']), failing };
}

/** Attempts of which the history has more than one row. */
export async function attemptsRecordedTwice(pool: Pick<pg.Pool, 'query'>): Promise<number> {
  const answer = await pool.query<{ twice: string }>(
    'select count(*) - count(distinct delivery_attempt_id) as twice from delivery_attempts',
  );
  return Number(answer.rows[0]?.twice);
}

/** Where the missing ones are, for whoever reads the failure. */
export async function explain(
  pool: Pick<pg.Pool, 'query'>,
  hubs: readonly HubProcess[],
): Promise<void> {
  for (const text of [
    'select count(*) from event_inbox',
    'select count(*) from deliveries',
    'select state, count(*), min(due_at), max(due_at), max(attempts) from retries group by 1',
    'select crashes, started, count(*) from suspects group by 1, 2',
    'select reason, count(*) from dead_letters group by 1',
    'select outcome, final, count(*) from delivery_attempts group by 1, 2',
    `select l.id, l.address, l.settled_through, (select count(*) from deliveries d where d.lane_id = l.id and d.seq > l.settled_through) as beyond,
       (select s.lease_until - now() from shards s where s.shard = l.shard) as lease from lanes l`,
    'select now(), count(*), min(lease_until), owner from shards group by owner',
    'select * from processes',
    'select * from stream_positions',
  ]) {
    const answer = await pool.query<Record<string, unknown>>(text);
    process.stderr.write(`${text}\n${answer.rows.map((row) => JSON.stringify(row)).join('\n')}\n`);
  }
  for (const hub of hubs) process.stderr.write(`${hub.log().slice(-3_000)}\n`);
}

/** One line with the figures of a test, for whoever reads the run. */
export function say(test: string, arrivals: Arrivals, more = ''): void {
  const { lost, duplicates, overtaken } = arrivals;
  process.stderr.write(
    `${test}: ${lost.length} lost, ${duplicates} repeated, ${overtaken} overtaken${more}\n`,
  );
}
