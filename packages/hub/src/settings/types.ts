import type { Buffer } from 'node:buffer';
import type { DeclaredSettings } from './table/index.ts';

/** The effective configuration. Keys ending in `_ms` and `_seconds` carry their unit. */
export interface Settings extends DeclaredSettings {
  /** No DSN: the hub runs its own Postgres in `dataDir`. */
  readonly embeddedPostgres: boolean;
  /** No brokers: the stream lives in Postgres. */
  readonly embeddedStream: boolean;
  /**
   * Key-encryption keys, newest first: the first wraps, the others only unwrap. Empty only in
   * local, where the hub makes a key once and keeps it in its data folder.
   */
  readonly keks: readonly NamedKek[];
  /** Names of the variables that were given; everything else is a default. */
  readonly given: ReadonlySet<string>;
}

export interface NamedKek {
  /** Stored beside what it wraps; derived from the key, so renaming the variable changes nothing. */
  readonly id: string;
  /** 32 bytes. */
  readonly key: Buffer;
}
