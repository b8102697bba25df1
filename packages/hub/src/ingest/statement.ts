import type pg from 'pg';
import type { TopicPartition } from '../stream/index.ts';
import { batchParameters } from './parameters.ts';
import { classify } from './refusal.ts';
import type { SortedBatch } from './sort.ts';

const week_ms = 604_800_000;

/** Where a batch starts and ends: the position it expects in the database, and the one it leaves there. */
export interface BatchRange extends TopicPartition {
  readonly expected_offset: number;
  readonly next_offset: number;
}

/** `applied` false: the database was at `position` and nothing was written. */
export interface BatchResult {
  readonly applied: boolean;
  readonly position: number;
  readonly stored: number;
  readonly deliveries: number;
}

export interface WriteOptions {
  /** Given up on after this, milliseconds; the transaction may commit all the same. */
  readonly timeout_ms: number;
  /** Duplicates are likely: look for each one instead of hoping for none. Only the cost differs. */
  readonly careful: boolean;
}

/** Migration 0003 explains the function and its order of steps. */
const ingestBatch = /* sql */ `
select applied, position_now, stored_count, delivery_count
from ingest_batch($1::text, $2::integer, $3::bigint, $4::bigint, $5::boolean, $23::bytea,
  $6::text[], $7::text[], $8::text[], $9::text[], $10::integer[],
  $11::uuid[], $12::integer[], $13::integer[], $14::integer[], $15::integer[],
  $16::uuid[], $17::bigint[], $18::text[], $19::text[], $20::integer[], $21::integer[], $22::integer[])`;

interface Row {
  applied: boolean;
  position_now: number | string;
  stored_count: number;
  delivery_count: number;
}

/** One batch in one transaction. Creates missing weeks and tries again. Errors are the database's. */
export async function writeBatch(
  pool: pg.Pool,
  range: BatchRange,
  batch: SortedBatch,
  options: WriteOptions,
): Promise<BatchResult> {
  const query = {
    name: 'ingest_batch',
    text: ingestBatch,
    values: [
      range.topic,
      range.partition,
      range.expected_offset,
      range.next_offset,
      options.careful,
      ...batchParameters(batch),
    ],
    query_timeout: options.timeout_ms,
  };
  const result = await pool.query<Row>(query).catch(async (error: unknown) => {
    if (classify(error) !== 'partition') throw error;
    await ensureWeeks(pool, batch);
    return pool.query<Row>(query);
  });
  const row = result.rows[0];
  if (row === undefined) throw new Error('ingest_batch returned no row');
  return {
    applied: row.applied,
    position: Number(row.position_now),
    stored: row.stored_count,
    deliveries: row.delivery_count,
  };
}

/** Ids may come from any week, old ones too; the sequence is in the current one. */
async function ensureWeeks(pool: pg.Pool, batch: SortedBatch): Promise<void> {
  await pool.query(/* sql */ `select ensure_arrival_week()`);
  const weeks = new Set(batch.events.map(({ event }) => weekOf(event.id)));
  // One transaction per week keeps the lock that guards partitions short.
  for (const week of weeks) await pool.query(/* sql */ `select ensure_inbox_week($1)`, [week]);
}

/** The week of a UUIDv7: its first 48 bits are milliseconds since the Unix epoch. */
export function weekOf(id: string): number {
  return Math.floor(Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16) / week_ms);
}
