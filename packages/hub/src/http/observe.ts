import type { FastifyInstance } from 'fastify';
import type { Metrics } from '../metrics/index.ts';

/** Counts every request by its route's pattern (never its path) and logs it at `debug`. */
export function installObservation(app: FastifyInstance, metrics: Metrics): void {
  app.addHook('onResponse', async (request, reply) => {
    const route = request.routeOptions.url ?? 'unknown';
    const { method } = request;
    const status = String(reply.statusCode);
    metrics.http.requests.inc({ route, method, status });
    metrics.http.seconds.observe({ route, method }, reply.elapsedTime / 1_000);
    request.log.debug(
      {
        route,
        method,
        status: reply.statusCode,
        duration_ms: reply.elapsedTime,
        tenant_id: request.principal?.tenant_id,
        trace_id: request.trace_id,
      },
      'request',
    );
  });
}
