export type { Collector, Metrics } from './metrics.ts';
export { createMetrics } from './metrics.ts';
