import type pg from 'pg';
import { type EventRow, eventColumns, toStoredEvent } from './row.ts';
import type { StoredEvent } from './types.ts';

/** Most events that one call reads. */
export const page_events_max = 500;

export interface EventKey {
  readonly tenant_id: string;
  readonly id: string;
}

/** One event of a tenant, or null. `id` must be a UUID; errors are the database's. */
export async function readEvent(
  pool: pg.Pool,
  tenant_id: string,
  id: string,
): Promise<StoredEvent | null> {
  const result = await pool.query<EventRow>(
    /* sql */ `select ${eventColumns} from event_inbox i where i.tenant_id = $1 and i.ce_id = $2`,
    [tenant_id, id],
  );
  const row = result.rows[0];
  return row === undefined ? null : toStoredEvent(row);
}

/**
 * Many events at once, each found by probing the one partition of its id. Those not stored (any
 * more) are left out; the order is not that of `keys`.
 */
export async function readEvents(pool: pg.Pool, keys: readonly EventKey[]): Promise<StoredEvent[]> {
  if (keys.length > page_events_max)
    throw new RangeError(`at most ${page_events_max} events at once`);
  const result = await pool.query<EventRow>({
    name: 'inbox_read_events',
    text: /* sql */ `
      select ${eventColumns}
      from unnest($1::text[], $2::uuid[]) k(tenant_id, ce_id)
      cross join lateral (
        select * from event_inbox e where e.tenant_id = k.tenant_id and e.ce_id = k.ce_id limit 1
      ) i`,
    values: [keys.map((key) => key.tenant_id), keys.map((key) => key.id)],
  });
  return result.rows.map(toStoredEvent);
}

export interface EventPage {
  readonly tenant_id: string;
  /** Only events with a higher arrival sequence. */
  readonly after: number;
  readonly limit: number;
  readonly origin?: string;
  /** Exact `resource.event` types. */
  readonly event_types?: readonly string[];
}

/**
 * A tenant's events in arrival order. A reader that goes on after the last sequence it got never
 * skips an event: sequences are handed out in the order of commits.
 */
export async function listEvents(pool: pg.Pool, page: EventPage): Promise<StoredEvent[]> {
  const result = await pool.query<EventRow>(
    /* sql */ `
      select ${eventColumns} from event_inbox i
      where i.tenant_id = $1 and i.seq > $2
        and ($4::text is null or i.origin = $4)
        and ($5::text[] is null or i.event_type = any ($5))
      order by i.seq limit $3`,
    [
      page.tenant_id,
      page.after,
      Math.min(page.limit, page_events_max),
      page.origin ?? null,
      page.event_types ?? null,
    ],
  );
  return result.rows.map(toStoredEvent);
}
