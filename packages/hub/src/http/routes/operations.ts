import type { HttpParts, HubApp } from '../parts.ts';

/** Liveness, readiness and metrics: for probes, so without a credential and without a tenant. */
export function operationsRoutes(app: HubApp, parts: HttpParts): void {
  const open = { config: { permission: 'public' as const } };

  app.get('/healthz', open, async () => ({ status: 'ok' }));

  app.get('/readyz', open, async (_request, reply) => {
    const report = await parts.readiness.report();
    reply.code(report.status === 'ready' ? 200 : 503).header('cache-control', 'no-store');
    return report;
  });

  if (!parts.metricsEnabled) return;
  app.get('/metrics', open, async (_request, reply) => {
    reply.type(parts.metrics.contentType);
    return parts.metrics.expose();
  });
}
