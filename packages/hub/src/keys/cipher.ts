import { createCipheriv, createDecipheriv, type KeyObject, randomBytes } from 'node:crypto';
import { KeyError } from './errors.ts';

export const key_bytes = 32;
const format_version = 1;
const nonce_bytes = 12;
const tag_bytes = 16;
const overhead_bytes = 1 + nonce_bytes + tag_bytes;

/**
 * The bound context of a seal. A JSON array, so that no two different lists give the same bytes.
 */
function contextBytes(context: readonly string[]): Buffer {
  return Buffer.from(JSON.stringify(context), 'utf8');
}

/** AES-256-GCM; the answer is version (1 byte), nonce (12), ciphertext, tag (16). */
export function sealBytes(key: KeyObject, context: readonly string[], plaintext: Buffer): Buffer {
  const nonce = randomBytes(nonce_bytes);
  const cipher = createCipheriv('aes-256-gcm', key, nonce, { authTagLength: tag_bytes });
  cipher.setAAD(contextBytes(context));
  return Buffer.concat([
    Buffer.of(format_version),
    nonce,
    cipher.update(plaintext),
    cipher.final(),
    cipher.getAuthTag(),
  ]);
}

/** @throws KeyError `seal_broken` unless the same key and context sealed exactly these bytes. */
export function openBytes(key: KeyObject, context: readonly string[], sealed: Buffer): Buffer {
  if (sealed.length < overhead_bytes || sealed[0] !== format_version) {
    throw new KeyError('seal_broken', 'The sealed bytes are not of a known format.');
  }
  const nonce = sealed.subarray(1, 1 + nonce_bytes);
  const decipher = createDecipheriv('aes-256-gcm', key, nonce, { authTagLength: tag_bytes });
  decipher.setAAD(contextBytes(context));
  decipher.setAuthTag(sealed.subarray(sealed.length - tag_bytes));
  try {
    const body = decipher.update(sealed.subarray(1 + nonce_bytes, sealed.length - tag_bytes));
    return Buffer.concat([body, decipher.final()]);
  } catch (cause) {
    throw new KeyError(
      'seal_broken',
      'The sealed bytes were altered, or belong to something else.',
      { cause },
    );
  }
}
