import { ingestTopicPattern } from '@streaming-hub/contract';
import { type Service, systemClock } from '../base/index.ts';
import type { StreamConsumer } from '../stream/index.ts';
import { createBatchHandler } from './batch-handler.ts';
import { defaultIngestLimits, type IngestOptions } from './types.ts';

export interface Ingest extends Service {
  readonly consumer: StreamConsumer;
}

/**
 * The way from the stream into the inbox. Each batch of a partition is one transaction: events,
 * quarantined records, matches and the partition's position. While the database is away, batches
 * fail, the stream holds the partitions back and nothing is lost.
 */
export function createIngest(options: IngestOptions): Ingest {
  const { pool, stream, rules, group, metrics, log } = options;
  const limits = { ...defaultIngestLimits, ...options.limits };
  const handler = createBatchHandler({
    pool,
    rules,
    metrics,
    log,
    limits,
    clock: options.clock ?? systemClock,
    gate: options.gate ?? (async () => {}),
    onDeliveries: options.onDeliveries ?? (() => {}),
  });
  const consumer = stream.consume({
    group,
    topics: ingestTopicPattern(rules),
    refresh_interval_ms: options.refresh_interval_ms,
    batch_records_max: limits.batch_records_max,
    batch_bytes_max: limits.batch_bytes_max,
    buffered_bytes_max: limits.buffered_bytes_max,
    loadPositions: handler.loadPositions,
    onBatch: handler.onBatch,
    onFault: (fault) => {
      metrics.faults.inc(1);
      log.warn({ err: fault }, 'ingest goes on after a fault');
    },
  });
  return {
    consumer,
    start: () => consumer.start(),
    stop: () => consumer.stop(),
  };
}
