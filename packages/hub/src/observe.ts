import type pg from 'pg';
import type { Logger } from './base/index.ts';
import type { Ingest } from './ingest/index.ts';
import type { AttemptReport, Dispatcher } from './lanes/index.ts';
import type { Metrics } from './metrics/index.ts';

/** Joins what the stages report to metrics and to the log; the stages know neither. */

/** One structured line per attempt: its whole outcome, and what follows. */
export function attemptObserver(metrics: Metrics, log: Logger) {
  return {
    onAttempt(report: AttemptReport): void {
      const { subscription, delivery, attempt } = report;
      const kind = subscription.kind;
      metrics.attempts.total.inc({ kind, outcome: attempt.outcome });
      metrics.attempts.seconds.observe({ kind }, attempt.duration_us / 1e6);
      if (report.event_to_attempt_ms !== null) {
        metrics.attempts.eventToAttempt_seconds.observe(
          Math.max(0, report.event_to_attempt_ms) / 1000,
        );
      }
      if (report.decision === 'retry') metrics.outcome.retries.inc();
      log.info(
        {
          tenant_id: subscription.tenant_id,
          subscription_id: subscription.id,
          event_id: delivery.event?.id,
          delivery_attempt_id: attempt.delivery_attempt_id,
          attempt: attempt.attempt,
          outcome: attempt.outcome,
          status: attempt.status,
          error: attempt.error_code,
          duration_ms: attempt.duration_us / 1000,
          decision: report.decision,
          next_attempt_at:
            report.next_attempt_ms === null
              ? undefined
              : new Date(report.next_attempt_ms).toISOString(),
        },
        'attempt',
      );
    },
    onEnd: (outcome: string): void => metrics.outcome.deliveries.inc({ outcome }),
  };
}

/** What is cheap to know only when asked. The count of pending deliveries stops at a million. */
const pending_sql = /* sql */ `
select (select count(*) from (
          select 1 from lanes l cross join lateral (
            select 1 from deliveries d where d.lane_id = l.id and d.seq > l.settled_through limit 100000) d
          limit 1000000) p)
     + (select count(*) from (select 1 from retries limit 1000000) r) as pending,
       (select extract(epoch from now() - min(due_at)) from retries where state = 'scheduled' and due_at < now()) as oldest_due`;

export function installGauges(parts: {
  metrics: Metrics;
  pool: pg.Pool;
  ingest: Ingest | null;
  dispatcher: Dispatcher | null;
}): void {
  const { metrics, pool, ingest, dispatcher } = parts;
  metrics.collectOnScrape(async () => {
    if (!ingest) return;
    const lags = await ingest.consumer.lag();
    metrics.ingest.lag.set(lags.reduce((sum, { lag }) => sum + lag, 0));
  });
  if (!dispatcher) return;
  metrics.collectOnScrape(() => {
    const stats = dispatcher.stats();
    metrics.lanes.inFlight.set(stats.in_flight);
    metrics.lanes.shards.set(stats.shards);
    metrics.lanes.breakers.set({ state: 'closed' }, stats.lanes);
  });
  metrics.collectOnScrape(async () => {
    const answer = await pool.query<{ pending: number; oldest_due: number | null }>(pending_sql);
    metrics.lanes.pending.set(Number(answer.rows[0]?.pending ?? 0));
    metrics.lanes.oldestDue_seconds.set(Number(answer.rows[0]?.oldest_due ?? 0));
  });
}
