import { type Attributes, defaultRules } from '@streaming-hub/contract';
import type pg from 'pg';
import { uuidv7 } from 'uuidv7';
import { systemClock } from '../base/index.ts';
import type { PartitionBatch, RawHeader, StreamRecord } from '../stream/index.ts';
import { type BatchHandlerParts, createBatchHandler } from './batch-handler.ts';
import { defaultIngestLimits, type IngestMetrics } from './types.ts';

/** Helpers of the tests in this folder. */

export const topic = 'lerian.streaming.midaz';

export function attributesOf(some: Attributes = {}): Attributes {
  const origin = some['source'] ?? 'midaz';
  const resource = some['resourcetype'] ?? 'account';
  const event = some['eventtype'] ?? 'created';
  return {
    specversion: '1.0',
    id: uuidv7(),
    source: origin,
    type: `studio.lerian.${origin}.${resource}.${event}`,
    time: '2026-11-30T12:00:00.000Z',
    schemaversion: '1.0.0',
    resourcetype: resource,
    eventtype: event,
    tenantid: 'tenant-a',
    ...some,
  };
}

export function headersOf(attributes: Attributes): RawHeader[] {
  return Object.entries(attributes).map(([name, value]) => {
    const key = name.startsWith('trace') ? name : `ce-${name}`;
    return [Buffer.from(key), Buffer.from(value)];
  });
}

export interface RecordParts {
  readonly attributes?: Attributes;
  readonly headers?: readonly RawHeader[];
  readonly value?: Buffer | null;
  readonly partition?: number;
}

export function recordAt(offset: number, parts: RecordParts = {}): StreamRecord {
  return {
    topic,
    partition: parts.partition ?? 0,
    offset,
    timestamp_ms: Date.now(),
    key: null,
    value: parts.value === undefined ? Buffer.from('{"n":1}') : parts.value,
    headers: parts.headers ?? headersOf(attributesOf(parts.attributes)),
  };
}

/** Records with offsets from `from` on, one per entry. */
export function recordsFrom(from: number, entries: readonly RecordParts[]): StreamRecord[] {
  return entries.map((parts, index) => recordAt(from + index, parts));
}

export function batchOf(
  records: readonly StreamRecord[],
  signal = new AbortController().signal,
): PartitionBatch {
  return { topic, partition: records[0]?.partition ?? 0, records, signal };
}

/** Metrics that a test can read: `verdict/reason` → count. */
export function countingMetrics() {
  const counts: Record<string, number> = {};
  const add = (name: string, count: number) => {
    counts[name] = (counts[name] ?? 0) + count;
  };
  const counter = (name: string) => ({ inc: (count: number) => add(name, count) });
  const metrics: IngestMetrics = {
    records: {
      inc: ({ verdict, reason }, count) =>
        add(reason === '' ? verdict : `${verdict}/${reason}`, count),
    },
    eventsStored: counter('stored'),
    duplicates: counter('duplicates'),
    faults: counter('faults'),
    batchSeconds: { observe: () => add('batches', 1) },
  };
  return { metrics, counts };
}

export const quiet = { info() {}, warn() {}, error() {} };

export function handlerOn(pool: pg.Pool, some: Partial<BatchHandlerParts> = {}) {
  const { metrics, counts } = countingMetrics();
  const handler = createBatchHandler({
    pool,
    rules: defaultRules,
    metrics,
    log: quiet,
    clock: systemClock,
    limits: defaultIngestLimits,
    gate: async () => {},
    onDeliveries: () => {},
    ...some,
  });
  return { ...handler, counts };
}

export interface SubscriptionParts {
  readonly tenant_id?: string;
  readonly event_types?: readonly string[];
  readonly schema_major?: number | null;
  readonly origin?: string | null;
  readonly enabled?: boolean;
  readonly verification_state?: string;
  /** Subscriptions with one address share a lane. */
  readonly address?: string;
}

/** Inserts an active subscription and returns its number and lane. */
export async function subscribe(
  pool: pg.Pool,
  parts: SubscriptionParts = {},
): Promise<{ id: string; number: number; lane_id: number }> {
  const tenant_id = parts.tenant_id ?? 'tenant-a';
  const result = await pool.query<{ id: string; number: number; lane_id: number }>(
    /* sql */ `
      with l as (
        insert into lanes (tenant_id, kind, address) values ($2, 'webhook', $3)
        on conflict (tenant_id, kind, address) do update set kind = excluded.kind
        returning id
      )
      insert into subscriptions (id, tenant_id, kind, enabled, verification_state, destination, lane_id, event_types,
        schema_major, origin, format, ordering, max_in_flight, verification_method)
      select $1, $2, 'webhook', $4, $5, '{}', l.id, $6, $7, $8, 'binary', 'fifo', 1, 'challenge' from l
      returning id, number, lane_id`,
    [
      uuidv7(),
      tenant_id,
      parts.address ?? `https://${uuidv7()}.example`,
      parts.enabled ?? true,
      parts.verification_state ?? 'active',
      parts.event_types ?? ['*'],
      parts.schema_major ?? null,
      parts.origin ?? null,
    ],
  );
  const row = result.rows[0];
  if (row === undefined) throw new Error('not inserted');
  return row;
}

export async function rowsOf<R extends pg.QueryResultRow>(
  pool: pg.Pool | pg.PoolClient,
  text: string,
  values: unknown[] = [],
): Promise<R[]> {
  return (await pool.query<R>(text, values)).rows;
}

export async function countOf(
  pool: pg.Pool,
  table: 'event_inbox' | 'deliveries' | 'batch_log' | 'quarantine',
): Promise<number> {
  const rows = await rowsOf<{ n: number }>(pool, `select count(*)::integer as n from ${table}`);
  return rows[0]?.n ?? 0;
}

export async function storedPosition(pool: pg.Pool, partition = 0): Promise<number | undefined> {
  const rows = await rowsOf<{ n: number | string }>(
    pool,
    'select next_offset as n from stream_positions where topic = $1 and partition = $2',
    [topic, partition],
  );
  return rows[0] === undefined ? undefined : Number(rows[0].n);
}
