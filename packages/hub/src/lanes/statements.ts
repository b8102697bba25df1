import type pg from 'pg';
import type { StoredEvent } from '../inbox/index.ts';
import type { Lane } from './model.ts';

/** Row of the log (or of `retries`) with its event; `ce_id` null when retention has dropped the event. */
interface EventColumns {
  readonly tenant_id: string;
  readonly ce_id: string;
  readonly origin: string | null;
  readonly event_type: string | null;
  readonly attributes: Record<string, string> | null;
  readonly body: Buffer | null;
  readonly body_bytes: number | null;
}

/** Bodies beyond this are not read with the heads but one by one when they are sent, so that memory stays bounded. */
const inlineBodyBytes_max = 65_536;

const eventColumns = /* sql */ `i.origin, i.event_type, i.attributes, octet_length(i.body) as body_bytes,
    case when octet_length(i.body) <= ${inlineBodyBytes_max} then i.body end as body`;

export interface LogRow {
  readonly lane_id: number;
  readonly seq: number;
  readonly subscription_number: number;
  readonly tenant_id: string;
  readonly event: StoredEvent | null;
  /** The event has a body that is still to be read. */
  readonly body_deferred: boolean;
}

export interface RetryRow extends LogRow {
  readonly attempts: number;
  readonly attempts_before: number;
  readonly due_ms: number;
  readonly first_failed_ms: number | null;
  readonly reason: string | null;
  readonly replay_id: string | null;
}

function eventOf(seq: number, row: EventColumns): StoredEvent | null {
  if (row.origin === null || row.event_type === null) return null;
  return {
    tenant_id: row.tenant_id,
    id: row.ce_id,
    sequence: seq,
    origin: row.origin,
    event_type: row.event_type,
    attributes: row.attributes ?? {},
    body: row.body,
  };
}

const intArray = (values: Iterable<number>): string => `{${[...values].join()}}`;

/**
 * Heads of many lanes in one statement. Each lane is one index range scan from its cursor, each
 * body one probe of one partition (the id names the week). Laterals with a limit, because a join
 * against a table that was empty when the plan was made turns into a scan of everything later.
 */
const readHeads_sql = /* sql */ `
select d.lane_id, d.seq, d.subscription_number, d.tenant_id, d.ce_id, e.*
from unnest($1::int[], $2::bigint[], $3::int[], $4::int[]) l(lane_id, after_seq, after_subscription, n)
cross join lateral (
  select x.lane_id, x.seq, x.subscription_number, x.tenant_id, x.ce_id from deliveries x
  where x.lane_id = l.lane_id and x.seq >= l.after_seq
    and (x.seq, x.subscription_number) > (l.after_seq, l.after_subscription)
  order by x.seq, x.subscription_number limit l.n) d
left join lateral (
  select ${eventColumns} from event_inbox i
  where i.tenant_id = d.tenant_id and i.ce_id = d.ce_id limit 1) e on true`;

export async function readHeads(pool: pg.Pool, lanes: readonly Lane[]): Promise<LogRow[]> {
  const answer = await pool.query<EventColumns & Omit<LogRow, 'event' | 'body_deferred'>>({
    name: 'read-heads',
    text: readHeads_sql,
    values: [
      intArray(lanes.map((lane) => lane.id)),
      intArray(lanes.map((lane) => lane.cursor_seq)),
      intArray(lanes.map((lane) => lane.cursor_subscription)),
      intArray(lanes.map((lane) => lane.read_size)),
    ],
  });
  return answer.rows.map((row) => ({
    lane_id: row.lane_id,
    seq: Number(row.seq),
    subscription_number: row.subscription_number,
    tenant_id: row.tenant_id,
    event: eventOf(Number(row.seq), row),
    body_deferred: row.body === null && row.body_bytes !== null,
  }));
}

const retryColumns = /* sql */ `
r.lane_id, r.seq, r.subscription_number, r.tenant_id, r.ce_id, r.attempts, r.attempts_before, r.reason, r.replay_id,
extract(epoch from r.due_at) * 1000 as due_ms, extract(epoch from r.first_failed_at) * 1000 as first_failed_ms, e.*`;

const retryEvent = /* sql */ `
left join lateral (
  select ${eventColumns} from event_inbox i
  where i.tenant_id = r.tenant_id and i.ce_id = r.ce_id limit 1) e on true`;

async function readRetries(
  pool: pg.Pool,
  name: string,
  text: string,
  values: unknown[],
): Promise<RetryRow[]> {
  const answer = await pool.query<EventColumns & Omit<RetryRow, 'event' | 'body_deferred'>>({
    name,
    text,
    values,
  });
  return answer.rows.map((row) => ({
    lane_id: row.lane_id,
    seq: Number(row.seq),
    subscription_number: row.subscription_number,
    tenant_id: row.tenant_id,
    event: eventOf(Number(row.seq), row),
    body_deferred: row.body === null && row.body_bytes !== null,
    attempts: row.attempts,
    attempts_before: row.attempts_before,
    due_ms: Number(row.due_ms),
    first_failed_ms: row.first_failed_ms === null ? null : Number(row.first_failed_ms),
    reason: row.reason,
    replay_id: row.replay_id,
  }));
}

/** Where a page of due retries ended. */
export type DueCursor = Pick<RetryRow, 'due_ms' | 'seq'>;

/** Retries that are due on these shards, oldest first, after `cursor`. Lanes in `skip` have their share in memory already. */
export function readDueRetries(
  pool: pg.Pool,
  shards: Iterable<number>,
  skip: Iterable<number>,
  cursor: DueCursor | null,
  limit: number,
): Promise<RetryRow[]> {
  const text = /* sql */ `
    with due as materialized (
      select lane_id, seq, subscription_number, tenant_id, ce_id, attempts, attempts_before, due_at, first_failed_at, reason, replay_id
      from retries
      where shard = any($1::smallint[]) and state = 'scheduled' and due_at <= now()
        and reason is distinct from 'resumed' and not lane_id = any($2::int[])
        and due_at >= to_timestamp($3::float8 / 1000) - interval '1 millisecond'
        and (due_at > to_timestamp($3::float8 / 1000) or seq > $4)
      order by due_at, seq limit $5)
    select ${retryColumns} from due r ${retryEvent} order by r.due_at, r.seq`;
  return readRetries(pool, 'read-due-retries', text, [
    intArray(shards),
    intArray(skip),
    cursor?.due_ms ?? 0,
    cursor?.seq ?? 0,
    limit,
  ]);
}

/** Failed heads that still hold their line (ordered subscriptions only), due or not. */
export function readHeldHeads(pool: pg.Pool, lanes: Iterable<number>): Promise<RetryRow[]> {
  const text = /* sql */ `
    select ${retryColumns} from retries r join subscriptions s on s.number = r.subscription_number ${retryEvent}
    where r.lane_id = any($1::int[]) and r.state = 'scheduled' and s.ordering <> 'unordered'
      and (r.first_failed_at is not null or r.reason = 'hub_error')
      and (s.hold_seconds is null or r.first_failed_at is null or r.first_failed_at + make_interval(secs => s.hold_seconds) > now())
    order by r.seq`;
  return readRetries(pool, 'read-held-heads', text, [intArray(lanes)]);
}

/** Parked deliveries of one subscription on one lane that come back, in order of arrival. */
export function readResumed(
  pool: pg.Pool,
  lane_id: number,
  subscription_number: number,
  after_seq: number,
  limit: number,
): Promise<RetryRow[]> {
  const text = /* sql */ `
    select ${retryColumns} from retries r ${retryEvent}
    where r.subscription_number = $2 and r.lane_id = $1 and r.reason = 'resumed' and r.state = 'scheduled' and r.seq > $3
    order by r.seq limit $4`;
  return readRetries(pool, 'read-resumed', text, [lane_id, subscription_number, after_seq, limit]);
}

/** Which subscriptions of these lanes have deliveries that are parked, or were and are coming back. */
export async function resumedOnLanes(pool: pg.Pool, lanes: Iterable<number>) {
  const answer = await pool.query<{
    lane_id: number;
    subscription_number: number;
    parked: boolean;
  }>({
    name: 'resumed-on-lanes',
    text: `select distinct lane_id, subscription_number, state = 'parked' as parked from retries
           where lane_id = any($1::int[]) and (reason = 'resumed' or state = 'parked')`,
    values: [intArray(lanes)],
  });
  return answer.rows;
}

/** On which lanes parked deliveries of these subscriptions come back. */
export async function lanesResuming(pool: pg.Pool, subscription_numbers: Iterable<number>) {
  const answer = await pool.query<{ lane_id: number; subscription_number: number }>({
    name: 'lanes-resuming',
    text: `select distinct lane_id, subscription_number from retries
           where subscription_number = any($1::int[]) and reason = 'resumed'`,
    values: [intArray(subscription_numbers)],
  });
  return answer.rows;
}

/** When the next retry of these shards falls due, in milliseconds since the epoch; null when none waits. */
export async function nextRetryDue(
  pool: pg.Pool,
  shards: Iterable<number>,
): Promise<number | null> {
  const answer = await pool.query<{ due_ms: string | null }>({
    name: 'next-retry-due',
    text: /* sql */ `
      select extract(epoch from min(m.due_at)) * 1000 as due_ms
      from unnest($1::smallint[]) s(shard)
      cross join lateral (
        select due_at from retries r
        where r.shard = s.shard and r.state = 'scheduled' and r.reason is distinct from 'resumed' order by due_at limit 1) m`,
    values: [intArray(shards)],
  });
  const due_ms = answer.rows[0]?.due_ms ?? null;
  return due_ms === null ? null : Number(due_ms);
}

export async function newestBatch(pool: pg.Pool): Promise<number> {
  const answer = await pool.query<{ seq: string }>(
    'select coalesce(max(seq_to), 0) as seq from batch_log',
  );
  return Number(answer.rows[0]?.seq ?? 0);
}

/** Versions are drawn under a lock held to commit: everything up to this one has been committed. */
export async function newestSubscriptionVersion(pool: pg.Pool): Promise<number> {
  const answer = await pool.query<{ version: string }>(
    'select coalesce(max(version), 0) as version from subscriptions',
  );
  return Number(answer.rows[0]?.version ?? 0);
}

export interface Batch {
  readonly seq_to: number;
  readonly lanes: readonly number[];
}

/** The only poll for new work: what ingest has added since `cursor`. */
export async function readTail(pool: pg.Pool, cursor: number, limit: number): Promise<Batch[]> {
  const answer = await pool.query<{ seq_to: string; lanes: number[] }>({
    name: 'read-tail',
    text: 'select seq_to, lanes from batch_log where seq_to > $1 order by seq_to limit $2',
    values: [cursor, limit],
  });
  return answer.rows.map((row) => ({ seq_to: Number(row.seq_to), lanes: row.lanes }));
}

/** Lanes of these shards with anything in the log beyond their saved position, or with parked deliveries coming back. */
export async function lanesWithWork(pool: pg.Pool, shards: Iterable<number>): Promise<number[]> {
  const answer = await pool.query<{ id: number }>(
    /* sql */ `
    select l.id from lanes l
    cross join lateral (select 1 from deliveries d where d.lane_id = l.id and d.seq > l.settled_through order by d.seq limit 1) x
    where l.shard = any($1::smallint[])
    union
    select lane_id from retries where shard = any($1::smallint[]) and reason = 'resumed'`,
    [intArray(shards)],
  );
  return answer.rows.map((row) => row.id);
}

export interface LaneRow {
  readonly id: number;
  readonly tenant_id: string;
  readonly settled_through: number;
}

export async function readLanes(pool: pg.Pool, ids: Iterable<number>): Promise<LaneRow[]> {
  const answer = await pool.query<{ id: number; tenant_id: string; settled_through: string }>({
    name: 'read-lanes',
    text: 'select id, tenant_id, settled_through from lanes where id = any($1::int[])',
    values: [intArray(ids)],
  });
  return answer.rows.map((row) => ({ ...row, settled_through: Number(row.settled_through) }));
}

export interface RecoveredRow {
  readonly lane_id: number;
  readonly seq: number;
  readonly subscription_number: number;
  /** Counted tries so far; null when the delivery is finished or waits in `retries`. */
  readonly attempts: number | null;
}

/**
 * What earlier owners did beyond the saved positions. A failed attempt without a row in
 * `retries` was recorded by an owner that had been replaced: that delivery is still to be done.
 */
export async function readRecovered(pool: pg.Pool, ids: Iterable<number>): Promise<RecoveredRow[]> {
  const answer = await pool.query<{
    lane_id: number;
    seq: string;
    subscription_number: number;
    finished: boolean;
    attempts: number;
  }>({
    name: 'read-recovered',
    text: /* sql */ `
      select lane_id, seq, subscription_number, bool_or(finished) as finished, max(attempts) as attempts from (
        select l.id as lane_id, a.seq, a.subscription_number, a.final as finished, a.attempt as attempts
        from lanes l cross join lateral (
          select seq, subscription_number, final, attempt from delivery_attempts a
          where a.lane_id = l.id and a.seq > l.settled_through) a
        where l.id = any($1::int[])
        union all
        select l.id, r.seq, r.subscription_number, true, r.attempts
        from lanes l cross join lateral (
          select seq, subscription_number, attempts from retries r where r.lane_id = l.id and r.seq > l.settled_through) r
        where l.id = any($1::int[])) x
      group by 1, 2, 3`,
    values: [intArray(ids)],
  });
  return answer.rows.map((row) => ({
    lane_id: row.lane_id,
    seq: Number(row.seq),
    subscription_number: row.subscription_number,
    attempts: row.finished ? null : row.attempts,
  }));
}

export interface Position {
  readonly lane_id: number;
  readonly settled_through: number;
  readonly shard: number;
  readonly token: number;
}

/** Saves positions; only forwards, and only under the current lease. */
export async function savePositions(pool: pg.Pool, positions: readonly Position[]): Promise<void> {
  await pool.query({
    name: 'save-positions',
    text: /* sql */ `
      update lanes l set settled_through = u.settled
      from unnest($1::int[], $2::bigint[], $3::smallint[], $4::bigint[]) u(id, settled, shard, token)
      join shards s on s.shard = u.shard and s.token = u.token
      where l.id = u.id and l.settled_through < u.settled`,
    values: [
      intArray(positions.map((position) => position.lane_id)),
      intArray(positions.map((position) => position.settled_through)),
      intArray(positions.map((position) => position.shard)),
      intArray(positions.map((position) => position.token)),
    ],
  });
}

export async function readBody(pool: pg.Pool, event: StoredEvent): Promise<Buffer | null> {
  const answer = await pool.query<{ body: Buffer | null }>({
    name: 'read-body',
    text: 'select body from event_inbox where tenant_id = $1 and ce_id = $2',
    values: [event.tenant_id, event.id],
  });
  return answer.rows[0]?.body ?? null;
}

/**
 * All suspects of the shards; one more crash for every one that was being tried when the owner of
 * an unclean shard vanished.
 */
export async function takeOverSuspects(
  pool: pg.Pool,
  shards: Iterable<number>,
  unclean: Iterable<number>,
) {
  const answer = await pool.query<{
    lane_id: number;
    seq: string;
    subscription_number: number;
    crashes: number;
  }>(
    /* sql */ `
    update suspects set crashes = crashes + (started and shard = any($2::smallint[]))::int, started = false
    where shard = any($1::smallint[]) returning lane_id, seq, subscription_number, crashes`,
    [intArray(shards), intArray(unclean)],
  );
  return answer.rows.map((row) => ({ ...row, seq: Number(row.seq) }));
}

/** The durable mark before a suspect is sent: should the process die now, the mark names it. */
export async function markSuspect(
  pool: pg.Pool,
  suspect: {
    lane_id: number;
    seq: number;
    subscription_number: number;
    shard: number;
    crashes: number;
  },
): Promise<void> {
  await pool.query({
    name: 'mark-suspect',
    text: /* sql */ `
      insert into suspects (lane_id, seq, subscription_number, shard, crashes, started) values ($1, $2, $3, $4, $5, true)
      on conflict (lane_id, seq, subscription_number) do update set started = true`,
    values: [
      suspect.lane_id,
      suspect.seq,
      suspect.subscription_number,
      suspect.shard,
      suspect.crashes,
    ],
  });
}

/** Housekeeping of the batch log: owners never look back further than their own cursor. */
export async function pruneBatchLog(pool: pg.Pool, keep_ms: number): Promise<void> {
  await pool.query(
    `delete from batch_log where created_at < now() - make_interval(secs => $1::float8)
     and seq_to < (select max(seq_to) from batch_log)`,
    [keep_ms / 1000],
  );
}

/** Processes that ended without a word. */
export async function pruneProcesses(pool: pg.Pool, keep_ms: number): Promise<void> {
  await pool.query(
    'delete from processes where heartbeat_at < now() - make_interval(secs => $1::float8)',
    [keep_ms / 1000],
  );
}
