import type { AttemptAnswer } from '@streaming-hub/contract';
import type pg from 'pg';
import type { DeliveryKey } from './types.ts';

interface AttemptRow {
  readonly attempt: number;
  readonly delivery_attempt_id: string;
  readonly started_at: Date;
  readonly duration_us: number;
  readonly outcome: string;
  readonly status: number | null;
  readonly error_code: string | null;
  readonly error_message: string | null;
  readonly response_excerpt: string | null;
  readonly dns_us: number | null;
  readonly connect_us: number | null;
  readonly tls_us: number | null;
  readonly first_byte_us: number | null;
}

const attempts_sql = /* sql */ `
select attempt, delivery_attempt_id, started_at, duration_us, outcome, status, error_code, error_message,
  response_excerpt, dns_us, connect_us, tls_us, first_byte_us
from delivery_attempts
where lane_id = $1 and seq = $2 and subscription_number = $3 and tenant_id = $4
order by started_at, attempt limit $5`;

/** Everything that was tried for one delivery, oldest first. */
export async function readAttempts(
  pool: pg.Pool,
  tenant_id: string,
  key: DeliveryKey,
  limit: number,
): Promise<readonly AttemptAnswer[]> {
  const answer = await pool.query<AttemptRow>(attempts_sql, [
    key.lane_id,
    key.seq,
    key.subscription_number,
    tenant_id,
    limit,
  ]);
  return answer.rows.map(toAttemptView);
}

const milliseconds = (us: number) => us / 1_000;
const measured = (us: number | null) => (us === null ? null : milliseconds(us));

function toAttemptView(row: AttemptRow): AttemptAnswer {
  return {
    number: row.attempt,
    delivery_attempt_id: row.delivery_attempt_id,
    started_at: row.started_at.toISOString(),
    duration_ms: milliseconds(row.duration_us),
    status: row.status,
    outcome: row.outcome,
    error:
      row.error_code === null
        ? null
        : { code: row.error_code, message: row.error_message ?? row.error_code },
    response_excerpt: row.response_excerpt,
    timings_ms: {
      dns: measured(row.dns_us),
      connect: measured(row.connect_us),
      tls: measured(row.tls_us),
      first_byte: measured(row.first_byte_us),
      total: milliseconds(row.duration_us),
    },
  };
}
