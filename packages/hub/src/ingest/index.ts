export { createIngest, type Ingest } from './ingest.ts';
export {
  defaultIngestLimits,
  type IngestLimits,
  type IngestLog,
  type IngestMetrics,
  type IngestOptions,
} from './types.ts';
