import type { QuarantineAnswer } from '@streaming-hub/contract';
import type pg from 'pg';

/** A quarantined value may hold 1 MiB and more; a page ends early rather than hold more than this. */
const pageValue_bytes_max = 8 * 1024 * 1024;

interface QuarantineRow {
  readonly id: string;
  readonly topic: string;
  readonly partition: number;
  readonly record_offset: number;
  readonly reason: QuarantineAnswer['reason'];
  readonly detail: string;
  readonly headers: QuarantineAnswer['headers'];
  readonly value: Buffer | null;
  readonly received_at: Date;
  readonly found: number;
}

const page_sql = /* sql */ `
with found as materialized (
  select id, octet_length(value) as bytes from quarantine
  where $1::uuid is null or id < $1 order by id desc limit $2),
fitting as (
  select id from (
    select id, row_number() over w as row, sum(coalesce(bytes, 0)) over w as total
    from found window w as (order by id desc)) sized
  where row = 1 or total <= $3)
select q.*, (select count(*) from found)::int as found
from fitting f join quarantine q using (id) order by q.id desc`;

/** Records that could not be used, newest first; `after` is the id of the last row shown. */
export async function readQuarantine(
  pool: pg.Pool,
  query: { readonly after: string | null; readonly limit: number },
): Promise<{ readonly rows: QuarantineAnswer[]; readonly next: string | null }> {
  const answer = await pool.query<QuarantineRow>(page_sql, [
    query.after,
    query.limit + 1,
    pageValue_bytes_max,
  ]);
  const rows = answer.rows.slice(0, query.limit);
  const last = rows.at(-1);
  return {
    rows: rows.map(toView),
    next: last && last.found > rows.length ? last.id : null,
  };
}

function toView(row: QuarantineRow): QuarantineAnswer {
  return {
    id: row.id,
    topic: row.topic,
    partition: row.partition,
    offset: String(row.record_offset),
    reason: row.reason,
    detail: row.detail,
    headers: row.headers,
    value_base64: row.value?.toString('base64') ?? null,
    received_at: row.received_at.toISOString(),
  };
}
