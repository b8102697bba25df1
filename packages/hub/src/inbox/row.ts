import type { StoredEvent } from './types.ts';

/** An `event_inbox` row as `pg` reads it (text mode, so that `body` keeps every byte). */
export interface EventRow {
  tenant_id: string;
  ce_id: string;
  /** A number from our pools, text from a plain one. */
  seq: number | string;
  origin: string;
  event_type: string;
  attributes: Record<string, string>;
  body: Buffer | null;
}

/** The columns that make an `EventRow`, of the table called `i`. */
export const eventColumns =
  'i.tenant_id, i.ce_id, i.seq, i.origin, i.event_type, i.attributes, i.body';

export function toStoredEvent(row: EventRow): StoredEvent {
  return {
    tenant_id: row.tenant_id,
    id: row.ce_id,
    sequence: Number(row.seq),
    origin: row.origin,
    event_type: row.event_type,
    attributes: row.attributes,
    body: row.body,
  };
}
