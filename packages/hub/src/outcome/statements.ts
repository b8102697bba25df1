import type pg from 'pg';
import type { AttemptRecord, Change, DeliveredAttempt, DeliveryKey } from './types.ts';

/**
 * The hot statement of dispatch: one appended row per healthy delivery, 200 at a time, nothing to
 * look up and nothing to plan. No unique key: after a take-over two processes may both have tried,
 * and both tries happened.
 */
const appendDelivered_sql = /* sql */ `
insert into delivery_attempts (lane_id, seq, subscription_number, tenant_id, attempt, delivery_attempt_id, started_at,
  duration_us, outcome, final, status, response_excerpt, dns_us, connect_us, tls_us, first_byte_us)
select lane_id, seq, number, tenant_id, attempt, id, to_timestamp(started_ms / 1000.0), duration_us, 'delivered', true,
  status, excerpt, dns_us, connect_us, tls_us, first_byte_us
from unnest($1::int[], $2::bigint[], $3::int[], $4::text[], $5::int[], $6::uuid[], $7::float8[], $8::int[], $9::smallint[],
  $10::text[], $11::int[], $12::int[], $13::int[], $14::int[])
  u(lane_id, seq, number, tenant_id, attempt, id, started_ms, duration_us, status, excerpt, dns_us, connect_us, tls_us, first_byte_us)`;

/** Array literal of plain numbers or uuids: cheaper than the driver's own, which quotes each element. */
function plain(values: readonly (number | string | null)[]): string {
  return `{${values.map((value) => value ?? 'null').join()}}`;
}

export async function appendDelivered(
  pool: pg.Pool,
  rows: readonly DeliveredAttempt[],
): Promise<void> {
  const column = <T>(read: (row: DeliveredAttempt) => T): T[] => rows.map(read);
  await pool.query({
    name: 'append-delivered',
    text: appendDelivered_sql,
    values: [
      plain(column((row) => row.lane_id)),
      plain(column((row) => row.seq)),
      plain(column((row) => row.subscription_number)),
      column((row) => row.tenant_id),
      plain(column((row) => row.attempt.attempt)),
      plain(column((row) => row.attempt.delivery_attempt_id)),
      plain(column((row) => row.attempt.started_ms)),
      plain(column((row) => row.attempt.duration_us)),
      plain(column((row) => row.attempt.status)),
      column((row) => storable(row.attempt.response_excerpt)),
      plain(column((row) => row.attempt.dns_us)),
      plain(column((row) => row.attempt.connect_us)),
      plain(column((row) => row.attempt.tls_us)),
      plain(column((row) => row.attempt.first_byte_us)),
    ],
  });
}

/** Applies the changes in one transaction; answers the indexes of those that were refused. */
export async function recordChanges(
  pool: pg.Pool,
  changes: readonly Change[],
): Promise<ReadonlySet<number>> {
  const document = changes.map((change, ord) => ({
    ...change,
    ord,
    last_error: storable(change.last_error),
    attempt: change.attempt && {
      ...change.attempt,
      error_message: storable(change.attempt.error_message),
      response_excerpt: storable(change.attempt.response_excerpt),
    },
  }));
  const answer = await pool.query<{ refused: number[] }>({
    name: 'record-changes',
    text: 'select record_changes($1::json) as refused',
    values: [JSON.stringify(document)],
  });
  return new Set(answer.rows[0]?.refused ?? []);
}

/** Which of these attempts are in the history already, by their ids. */
export async function recordedAttempts(
  pool: pg.Pool,
  rows: readonly (DeliveryKey & { readonly attempt: AttemptRecord })[],
): Promise<ReadonlySet<string>> {
  const answer = await pool.query<{ id: string }>({
    name: 'recorded-attempts',
    text: /* sql */ `
      select a.delivery_attempt_id as id
      from unnest($1::int[], $2::bigint[], $3::uuid[]) u(lane_id, seq, id)
      cross join lateral (
        select x.delivery_attempt_id from delivery_attempts x
        where x.lane_id = u.lane_id and x.seq = u.seq and x.delivery_attempt_id = u.id limit 1) a`,
    values: [
      plain(rows.map((row) => row.lane_id)),
      plain(rows.map((row) => row.seq)),
      plain(rows.map((row) => row.attempt.delivery_attempt_id)),
    ],
  });
  return new Set(answer.rows.map((row) => row.id));
}

/** Postgres text cannot hold U+0000 and json no lone surrogates: what a receiver sends must not block the batch. */
function storable(text: string | null): string | null {
  return text === null ? null : text.replaceAll('\u0000', '\ufffd').toWellFormed();
}
