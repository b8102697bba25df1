import type pg from 'pg';
import { backoff_ms, type Service, wait } from '../../base/index.ts';
import { withTransaction } from '../../store/index.ts';
import { dayOf, ensureDays } from './days.ts';

const day_ms = 86_400_000;
const interval_ms = 600_000;
const chunks_per_delete = 1000;
const deletes_per_run_max = 1000;
/** Whoever comes while a table is being dropped queues behind it; so it gives up soon and comes again. */
const lock_timeout_ms = 500;
/** Held by the one process that cleans up. */
const retention_lock = [1398096, 5] as const;

export interface Retention extends Service {
  /** One run, as if the clock showed `now_ms`. False = another process was at it. */
  apply(now_ms?: number): Promise<boolean>;
}

/**
 * Keeps the log's tables of the coming days ready, and lets go of records older than their topic's
 * retention: a day that no topic needs any longer is dropped as a table; where a topic keeps less
 * than the others its chunks are deleted.
 */
export function createRetention(
  pool: pg.Pool,
  options: { retention_ms_default: number; onFault: (fault: Error) => void },
): Retention {
  const { retention_ms_default, onFault } = options;
  const stopping = new AbortController();
  let running: Promise<void> | undefined;

  async function apply(now_ms = Date.now()): Promise<boolean> {
    await ensureDays(pool, now_ms);
    return withLock(pool, async () => {
      await dropDays(pool, now_ms, retention_ms_default);
      await deleteShortLived(pool, now_ms, retention_ms_default, stopping.signal);
      await pool.query(abandoned_sql);
    });
  }

  async function run(): Promise<void> {
    let failures = 0;
    while (!stopping.signal.aborted) {
      try {
        await apply();
        failures = 0;
        await wait(interval_ms, stopping.signal);
      } catch (error) {
        onFault(new Error('cleaning up the stream failed; trying again', { cause: error }));
        await wait(backoff_ms(failures++, 1000, interval_ms), stopping.signal);
      }
    }
  }

  return {
    apply,
    async start() {
      running ??= run();
    },
    async stop() {
      stopping.abort();
      await running;
    },
  };
}

/** Members of groups that nobody has joined since: others of the group would have removed them. */
const abandoned_sql = /* sql */ `
  delete from stream_members where expires_at < clock_timestamp() - interval '1 day'`;

/** Runs `work` unless another process is at it; tells which. */
async function withLock(pool: pg.Pool, work: () => Promise<void>): Promise<boolean> {
  const client = await pool.connect();
  let failed = true;
  try {
    const lock = await client.query<{ locked: boolean }>(
      /* sql */ `select pg_try_advisory_lock($1, $2) as locked`,
      [...retention_lock],
    );
    const locked = lock.rows[0]?.locked === true;
    if (locked) {
      await work();
      await client.query(/* sql */ `select pg_advisory_unlock($1, $2)`, [...retention_lock]);
    }
    failed = false;
    return locked;
  } finally {
    // Closing the connection gives the lock back.
    client.release(failed);
  }
}

async function dropDays(
  pool: pg.Pool,
  now_ms: number,
  retention_ms_default: number,
): Promise<void> {
  const longest = await pool.query<{ retention_ms: number }>(
    /* sql */ `select coalesce(max(coalesce(retention_ms, $1)), $1)::bigint as retention_ms from stream_topics`,
    [retention_ms_default],
  );
  const keep_from_day = dayOf(now_ms - (longest.rows[0]?.retention_ms ?? retention_ms_default));
  const tables = await pool.query<{ name: string }>(
    /* sql */ `select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'stream_log'::regclass order by 1`,
  );
  for (const { name } of tables.rows) {
    const day = Number(/^stream_log_d(\d+)$/.exec(name)?.[1]);
    if (day < keep_from_day) await dropDay(pool, day);
  }
}

/** The partitions' rows first, then the table: the order in which appends lock. */
async function dropDay(pool: pg.Pool, day: number): Promise<void> {
  await withTransaction(pool, async (client) => {
    await client.query(`set local lock_timeout = ${lock_timeout_ms}`);
    await client.query(
      /* sql */ `select 1 from stream_partitions p order by topic_id, partition for no key update`,
    );
    await client.query(
      /* sql */ `update stream_partitions p set first_offset = e.next
        from (select topic_id, partition, max(last_offset) + 1 as next from stream_log where day = $1 group by 1, 2) e
        where p.topic_id = e.topic_id and p.partition = e.partition and p.first_offset < e.next`,
      [day],
    );
    await client.query(`drop table stream_log_d${day}`);
  });
}

async function deleteShortLived(
  pool: pg.Pool,
  now_ms: number,
  retention_ms_default: number,
  signal: AbortSignal,
): Promise<void> {
  const due = await pool.query<{ topic_id: number; partition: number; before_ms: number }>(
    /* sql */ `select p.topic_id, p.partition, ($1::bigint - coalesce(t.retention_ms, $2))::bigint as before_ms
      from stream_partitions p join stream_topics t on t.id = p.topic_id
      cross join lateral (
        select appended_ms from stream_log l where l.topic_id = p.topic_id and l.partition = p.partition
        order by last_offset limit 1) oldest
      where oldest.appended_ms < $1::bigint - coalesce(t.retention_ms, $2)`,
    [now_ms, retention_ms_default],
  );
  let deletes = 0;
  for (const { topic_id, partition, before_ms } of due.rows) {
    for (let deleted = chunks_per_delete; deleted === chunks_per_delete; ) {
      if (signal.aborted || deletes++ >= deletes_per_run_max) return;
      const result = await pool.query(delete_sql, [
        topic_id,
        partition,
        before_ms,
        chunks_per_delete,
        day_ms,
      ]);
      deleted = result.rowCount ?? 0;
    }
  }
}

/** From the log's start up to the first chunk that is still wanted. */
const delete_sql = /* sql */ `
  with old as materialized (
    select last_offset, day from (
      select last_offset, day, appended_ms from stream_log
      where topic_id = $1 and partition = $2 order by last_offset limit $4
    ) oldest where appended_ms < $3
  ), moved as (
    update stream_partitions set first_offset = greatest(first_offset, (select max(last_offset) + 1 from old))
    where topic_id = $1 and partition = $2
  )
  delete from stream_log l
  where topic_id = $1 and partition = $2 and (last_offset, day) in (select last_offset, day from old)
    and day <= $3 / $5`;
