import { createSecretKey, type KeyObject } from 'node:crypto';
import type { NamedKek } from '../settings/index.ts';
import { key_bytes, openBytes, sealBytes } from './cipher.ts';
import { KekMismatch, KeyError } from './errors.ts';

/** Holds the key-encryption keys. Asynchronous, because a key service may stand behind it. */
export interface KeyProvider {
  /** Every key it can unwrap with; the first one wraps. */
  readonly kek_ids: readonly string[];
  wrap(context: readonly string[], data_key: Buffer): Promise<{ kek_id: string; wrapped: Buffer }>;
  /** @throws KekMismatch when it does not have that key, KeyError `seal_broken` when the bytes do not open. */
  unwrap(kek_id: string, context: readonly string[], wrapped: Buffer): Promise<Buffer>;
}

/**
 * A provider over keys in memory: the first wraps, all of them unwrap.
 * @throws KeyError `kek_invalid`
 */
export function localKeyProvider(keks: readonly NamedKek[]): KeyProvider {
  const keys = new Map<string, KeyObject>();
  for (const { id, key } of keks) {
    if (key.length !== key_bytes) {
      throw new KeyError(
        'kek_invalid',
        `A key-encryption key has ${key_bytes} bytes, not ${key.length}.`,
      );
    }
    keys.set(id, createSecretKey(key));
  }
  const kek_ids = [...keys.keys()];
  const current_id = kek_ids[0];
  const current = current_id === undefined ? undefined : keys.get(current_id);
  if (current_id === undefined || current === undefined) {
    throw new KeyError('kek_invalid', 'No key-encryption key is configured.');
  }
  return {
    kek_ids,
    async wrap(context, data_key) {
      return { kek_id: current_id, wrapped: sealBytes(current, context, data_key) };
    },
    async unwrap(kek_id, context, wrapped) {
      const key = keys.get(kek_id);
      if (!key) throw new KekMismatch(kek_id, kek_ids);
      return openBytes(key, context, wrapped);
    },
  };
}
