import type { ContractRules } from '@streaming-hub/contract';
import type pg from 'pg';
import type { Clock } from '../base/index.ts';
import type { Stream } from '../stream/index.ts';

interface Count {
  inc(count: number): void;
}

/** Told only after the transaction that made it true has committed. The hub's registry has this shape. */
export interface IngestMetrics {
  /** Records by verdict; `reason` is '' for accept. A duplicate is a drop with reason `duplicate`. */
  readonly records: { inc(labels: { verdict: string; reason: string }, count: number): void };
  readonly eventsStored: Count;
  readonly duplicates: Count;
  /** What was survived: lost stream or database, failing batches, a position that somebody else moved. */
  readonly faults: Count;
  /** One ingest transaction, seconds. */
  readonly batchSeconds: { observe(seconds: number): void };
}

/** The part of a logger that ingest uses. */
export interface IngestLog {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface IngestLimits {
  /** Most records in one transaction. */
  readonly batch_records_max: number;
  /** Most value bytes (roughly) in one transaction. */
  readonly batch_bytes_max: number;
  /** Most bytes held in memory for all partitions together. */
  readonly buffered_bytes_max: number;
  /** A transaction that has not answered by then is given up on (its outcome is found out by the fence), milliseconds. */
  readonly statement_timeout_ms: number;
}

export const defaultIngestLimits: IngestLimits = {
  batch_records_max: 500,
  batch_bytes_max: 4 * 1024 * 1024,
  buffered_bytes_max: 64 * 1024 * 1024,
  statement_timeout_ms: 30_000,
};

export interface IngestOptions {
  readonly pool: pg.Pool;
  readonly stream: Stream;
  readonly rules: ContractRules;
  readonly group: string;
  readonly metrics: IngestMetrics;
  readonly log: IngestLog;
  readonly clock?: Clock;
  readonly limits?: Partial<IngestLimits>;
  /** Waited for before each transaction: slows ingest down while dispatch in this process is behind. */
  readonly gate?: (signal: AbortSignal) => Promise<void>;
  /** New deliveries have been committed: dispatch in this process need not wait for the notification. */
  readonly onDeliveries?: () => void;
  readonly refresh_interval_ms: number;
}
