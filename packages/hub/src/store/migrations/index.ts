import { core } from './0001_core.ts';
import { ingest } from './0003_ingest.ts';
import { outcomes } from './0004_outcomes.ts';

/** Every migration: its name, which also gives the order, and its SQL. Names are never reused or changed. */
export const migrations: Readonly<Record<string, string>> = {
  '0001_core': core,
  '0003_ingest': ingest,
  '0004_outcomes': outcomes,
};
