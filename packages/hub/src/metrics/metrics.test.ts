import { expect, it } from 'vitest';
import { createMetrics } from './index.ts';

it('has the names that dashboards rely on', () => {
  expect(createMetrics().names().toSorted()).toEqual([
    'streaming_hub_attempt_seconds',
    'streaming_hub_attempts_in_flight',
    'streaming_hub_attempts_total',
    'streaming_hub_breakers',
    'streaming_hub_deliveries_total',
    'streaming_hub_duplicates_total',
    'streaming_hub_event_to_attempt_seconds',
    'streaming_hub_events_stored_total',
    'streaming_hub_http_request_seconds',
    'streaming_hub_http_requests_total',
    'streaming_hub_ingest_batch_seconds',
    'streaming_hub_ingest_faults_total',
    'streaming_hub_oldest_due_seconds',
    'streaming_hub_pending_deliveries',
    'streaming_hub_records_total',
    'streaming_hub_retries_total',
    'streaming_hub_shards_held',
    'streaming_hub_stream_lag',
  ]);
});

it('shows labels, and gauges that are read when asked', async () => {
  const metrics = createMetrics();
  metrics.ingest.records.inc({ verdict: 'drop', reason: 'system_event' }, 3);
  metrics.attempts.total.inc({ kind: 'webhook', outcome: 'delivered' });
  metrics.collectOnScrape(() => metrics.lanes.pending.set(7));
  metrics.collectOnScrape(() => {
    throw new Error('the database is away');
  });
  const text = await metrics.expose();
  expect(text).toContain('streaming_hub_records_total{verdict="drop",reason="system_event"} 3');
  expect(text).toContain('streaming_hub_attempts_total{kind="webhook",outcome="delivered"} 1');
  expect(text).toContain('streaming_hub_pending_deliveries 7');
  expect(text).toContain('streaming_hub_breakers{state="open"} 0');
});

it('keeps two registries apart', async () => {
  const [one, other] = [createMetrics(), createMetrics()];
  one.ingest.duplicates.inc();
  expect(await other.expose()).toContain('streaming_hub_duplicates_total 0');
});
