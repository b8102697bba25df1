import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

/** Seconds from a fast local hop to the longest step of the default retry schedule. */
const latencyBuckets_seconds = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 7_200,
  36_000,
];
const exchangeBuckets_seconds = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30,
];

/** Reads something that is cheap to know only when asked, and sets its gauges. */
export type Collector = () => void | Promise<void>;

/**
 * Every metric of the hub, by the stage that owns it. No label ever holds a tenant, an address or
 * an id: their number has no bound.
 */
export function createMetrics() {
  const registry = new Registry();
  const registers = [registry];
  const collectors: Collector[] = [];

  const counter = <L extends string>(name: string, help: string, ...labelNames: L[]) =>
    new Counter<L>({ name, help, labelNames, registers });
  const gauge = <L extends string>(name: string, help: string, ...labelNames: L[]) =>
    new Gauge<L>({ name, help, labelNames, registers });

  const metrics = {
    ingest: {
      records: counter(
        'streaming_hub_records_total',
        'Records read from the stream, by verdict and reason.',
        'verdict',
        'reason',
      ),
      eventsStored: counter('streaming_hub_events_stored_total', 'Events stored in the inbox.'),
      duplicates: counter(
        'streaming_hub_duplicates_total',
        'Accepted records whose event was stored before.',
      ),
      faults: counter(
        'streaming_hub_ingest_faults_total',
        'Faults that the ingest survived (lost broker, failing batch, failed commit).',
      ),
      batchSeconds: new Histogram({
        name: 'streaming_hub_ingest_batch_seconds',
        help: 'From taking a batch to its commit in the database.',
        buckets: exchangeBuckets_seconds,
        registers,
      }),
      lag: gauge(
        'streaming_hub_stream_lag',
        'Records on the assigned partitions that are not ingested yet.',
      ),
    },
    lanes: {
      pending: gauge(
        'streaming_hub_pending_deliveries',
        'Deliveries of the shards of this process that wait or are due.',
      ),
      oldestDue_seconds: gauge(
        'streaming_hub_oldest_due_seconds',
        'How long the oldest runnable delivery of this process has been due.',
      ),
      inFlight: gauge('streaming_hub_attempts_in_flight', 'Attempts running in this process.'),
      shards: gauge('streaming_hub_shards_held', 'Shards that this process holds a lease on.'),
      breakers: gauge('streaming_hub_breakers', 'Breakers of this process by state.', 'state'),
    },
    attempts: {
      total: counter(
        'streaming_hub_attempts_total',
        'Attempts by kind of destination and outcome.',
        'kind',
        'outcome',
      ),
      seconds: new Histogram({
        name: 'streaming_hub_attempt_seconds',
        help: 'Length of one attempt.',
        labelNames: ['kind'],
        buckets: exchangeBuckets_seconds,
        registers,
      }),
      eventToAttempt_seconds: new Histogram({
        name: 'streaming_hub_event_to_attempt_seconds',
        help: 'From storing an event to the start of its first attempt.',
        buckets: latencyBuckets_seconds,
        registers,
      }),
    },
    outcome: {
      deliveries: counter(
        'streaming_hub_deliveries_total',
        'Deliveries that reached an end, by outcome.',
        'outcome',
      ),
      retries: counter('streaming_hub_retries_total', 'Retries scheduled after a failed attempt.'),
    },
    http: {
      requests: counter(
        'streaming_hub_http_requests_total',
        'Requests by route, method and status.',
        'route',
        'method',
        'status',
      ),
      seconds: new Histogram({
        name: 'streaming_hub_http_request_seconds',
        help: 'Length of one request.',
        labelNames: ['route', 'method'],
        buckets: exchangeBuckets_seconds,
        registers,
      }),
    },
    contentType: registry.contentType,
    /** Calls `collector` before each exposition. */
    collectOnScrape(collector: Collector): void {
      collectors.push(collector);
    },
    /** Event loop, memory and garbage collection; once per process. */
    collectProcess(): void {
      collectDefaultMetrics({ register: registry, prefix: 'streaming_hub_process_' });
    },
    /** The exposition in the Prometheus text format. A collector that fails leaves its gauges as they were. */
    async expose(): Promise<string> {
      await Promise.allSettled(collectors.map(async (collector) => collector()));
      return registry.metrics();
    },
    names(): readonly string[] {
      return registry.getMetricsAsArray().map((metric) => metric.name);
    },
  };
  for (const state of ['closed', 'open', 'half_open']) metrics.lanes.breakers.set({ state }, 0);
  return metrics;
}

export type Metrics = ReturnType<typeof createMetrics>;
