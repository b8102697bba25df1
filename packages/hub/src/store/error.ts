/**
 * What can go wrong before the database is usable:
 * - `database_newer`: the schema was made by a newer version of this program
 * - `migration_failed`: a migration did not run; nothing of it was kept
 * - `folder_in_use`: another process runs on the same data folder
 * - `embedded_unavailable`: no Postgres for this platform, or this user cannot run one
 * - `embedded_failed`: the embedded Postgres did not start, or did not stop
 */
export type StoreErrorCode =
  | 'database_newer'
  | 'migration_failed'
  | 'folder_in_use'
  | 'embedded_unavailable'
  | 'embedded_failed';

/** Its message is one sentence (or a few) an operator can act on. */
export class StoreError extends Error {
  readonly code: StoreErrorCode;

  constructor(code: StoreErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'StoreError';
    this.code = code;
  }
}
