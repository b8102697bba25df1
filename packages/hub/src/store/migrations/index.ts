import { core } from './0001_core.ts';
import { stream } from './0002_stream.ts';
import { ingest } from './0003_ingest.ts';
import { outcomes } from './0004_outcomes.ts';
import { deliveries } from './0005_deliveries.ts';
import { verification } from './0006_verification.ts';

/** Every migration: its name, which also gives the order, and its SQL. Names are never reused or changed. */
export const migrations: Readonly<Record<string, string>> = {
  '0001_core': core,
  '0002_stream': stream,
  '0003_ingest': ingest,
  '0004_outcomes': outcomes,
  '0005_deliveries': deliveries,
  '0006_verification': verification,
};
