import { Buffer } from 'node:buffer';
import { createHash } from 'node:crypto';
import { SettingsError } from './error.ts';
import { settingsTable } from './table/index.ts';
import type { NamedKek } from './types.ts';

const kekBytes = 32;

/** A short name for a key that says nothing about it: stored beside every data key it wraps. */
export function kekId(key: Buffer): string {
  return createHash('sha256')
    .update('streaming-hub kek id\0')
    .update(key)
    .digest('hex')
    .slice(0, 16);
}

/**
 * Reads the key that `KEK_REF` names: 32 bytes in base64 (either alphabet).
 * @throws SettingsError when the variable is missing or holds anything else; never with its value.
 */
export function readKeks(
  reference: string | null,
  env: Readonly<Record<string, string | undefined>>,
): readonly NamedKek[] {
  if (reference === null) return [];
  const names = reference.split(',');
  return names.map((name) => readKek(name, env[name]));
}

function readKek(name: string, given: string | undefined): NamedKek {
  const setting = settingsTable.kekRef.name;
  // Whoever puts the key itself here must not find it in a log.
  if (!/^[A-Za-z_][A-Za-z0-9_]{0,127}$/.test(name) || looksLikeKey(name)) {
    throw new SettingsError(
      setting,
      `${setting} must hold the name of the variable with the key, not the key itself; its value is not shown.`,
    );
  }
  if (given === undefined) {
    throw new SettingsError(
      setting,
      `${setting} names ${name}, which is not set: put 32 random bytes in base64 into ${name} (openssl rand -base64 32).`,
    );
  }
  const text = given.trim();
  const key = Buffer.from(text, 'base64');
  if (!/^[A-Za-z0-9+/_-]+={0,2}$/.test(text) || key.length !== kekBytes) {
    throw new SettingsError(
      name,
      `${name} must hold exactly ${kekBytes} bytes in base64 (openssl rand -base64 32); its value is not shown.`,
    );
  }
  return { id: kekId(key), key };
}

function looksLikeKey(text: string): boolean {
  return text.length >= 43 && Buffer.from(text, 'base64').length === kekBytes;
}
