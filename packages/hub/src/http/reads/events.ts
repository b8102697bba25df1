import { toCloudEventJson } from '@streaming-hub/contract';
import type pg from 'pg';

/** Most body bytes in one page; a page ends early rather than hold more in memory. */
const pageBody_bytes_max = 8 * 1024 * 1024;

interface EventRow {
  readonly seq: number;
  readonly attributes: Record<string, string>;
  readonly body: Buffer | null;
}

/** A stored event as CloudEvents JSON with its arrival sequence. */
export type EventView = Record<string, unknown> & { readonly sequence: string };

/**
 * In arrival order. Numbers are drawn and rows inserted under one lock that is held to commit, so
 * whoever sees a number sees every lower one: reading on from the last number skips nothing.
 * Sizes of bodies are read from their headers only; bodies beyond the page's bound stay untouched.
 */
const page_sql = /* sql */ `
with found as materialized (
  select ce_id, seq, octet_length(body) as bytes from event_inbox
  where tenant_id = $1 and seq > $2 order by seq limit $3),
fitting as (
  select ce_id, seq from (
    select ce_id, seq, row_number() over w as row, sum(coalesce(bytes, 0)) over w as total
    from found window w as (order by seq)) sized
  where row = 1 or total <= $4)
select f.seq, i.attributes, i.body, (select count(*) from found)::int as found
from fitting f join event_inbox i on i.tenant_id = $1 and i.ce_id = f.ce_id
order by f.seq`;

export interface EventPage {
  readonly events: readonly EventView[];
  /** Sequence of the last event of the page, or where the page began. */
  readonly last: number;
  /** More was stored already when the page was read. */
  readonly more: boolean;
}

/** Events of one tenant after a sequence. */
export async function readEvents(
  pool: pg.Pool,
  query: { readonly tenant_id: string; readonly after: number; readonly limit: number },
): Promise<EventPage> {
  const answer = await pool.query<EventRow & { found: number }>({
    name: 'read-events',
    text: page_sql,
    values: [query.tenant_id, query.after, query.limit + 1, pageBody_bytes_max],
  });
  const rows = answer.rows.slice(0, query.limit);
  return {
    events: rows.map(toEventView),
    last: rows.at(-1)?.seq ?? query.after,
    more: (answer.rows[0]?.found ?? 0) > rows.length,
  };
}

/** One event by its `ce-id`, or null. */
export async function readEvent(
  pool: pg.Pool,
  tenant_id: string,
  event_id: string,
): Promise<EventView | null> {
  const answer = await pool.query<EventRow>(
    /* sql */ `select seq, attributes, body from event_inbox where tenant_id = $1 and ce_id = $2`,
    [tenant_id, event_id],
  );
  const row = answer.rows[0];
  return row ? toEventView(row) : null;
}

/** Only where an event stands: enough to find its deliveries. */
export async function readEventSequence(
  pool: pg.Pool,
  tenant_id: string,
  event_id: string,
): Promise<number | null> {
  const answer = await pool.query<{ seq: number }>(
    /* sql */ `select seq from event_inbox where tenant_id = $1 and ce_id = $2`,
    [tenant_id, event_id],
  );
  return answer.rows[0]?.seq ?? null;
}

function toEventView(row: EventRow): EventView {
  return { ...toCloudEventJson(row.attributes, row.body), sequence: String(row.seq) };
}
