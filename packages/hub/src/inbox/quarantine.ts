import type pg from 'pg';

/** `key`/`value` as UTF-8 text; bytes that are not stand as `key_base64`/`value_base64` instead. */
export interface QuarantinedHeader {
  readonly key?: string;
  readonly key_base64?: string;
  readonly value?: string;
  readonly value_base64?: string;
}

/** A record that could never become an event, stored whole. */
export interface QuarantineEntry {
  /** UUIDv7, grows with arrival. */
  readonly id: string;
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  readonly reason: string;
  readonly detail: string;
  readonly headers: readonly QuarantinedHeader[];
  readonly value: Buffer | null;
  readonly received_at: Date;
}

interface Row extends Omit<QuarantineEntry, 'offset'> {
  offset: number | string;
}

const page_entries_max = 200;
const columns =
  'id, topic, partition, record_offset as "offset", reason, detail, headers, value, received_at';
const toEntry = (row: Row): QuarantineEntry => ({ ...row, offset: Number(row.offset) });

/** Newest first; `before` is the id of the last entry already read. */
export async function listQuarantine(
  pool: pg.Pool,
  page: { readonly before: string | null; readonly limit: number },
): Promise<QuarantineEntry[]> {
  const result = await pool.query<Row>(
    /* sql */ `select ${columns} from quarantine where $1::uuid is null or id < $1 order by id desc limit $2`,
    [page.before, Math.min(page.limit, page_entries_max)],
  );
  return result.rows.map(toEntry);
}
