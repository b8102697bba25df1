import { randomBytes } from 'node:crypto';
import { link, mkdir, open, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { kekId, type NamedKek } from '../settings/index.ts';
import { key_bytes } from './cipher.ts';
import { KeyError } from './errors.ts';
import { type KeyProvider, localKeyProvider } from './provider.ts';

export interface KeySource {
  /** As read from the variables that `STREAMING_HUB_KEK_REF` names; may be empty. */
  readonly keks: readonly NamedKek[];
  /** Only here may a key be made up when none is given. */
  readonly local: boolean;
  readonly data_dir: string;
}

/**
 * The configured keys; in local without any, the one in `<data_dir>/kek`, made when it is missing.
 * @throws KeyError `kek_invalid`
 */
export async function openKeyProvider(source: KeySource): Promise<KeyProvider> {
  if (source.keks.length > 0) return localKeyProvider(source.keks);
  if (source.local) return localKeyProvider([await localKek(source.data_dir)]);
  throw new KeyError(
    'kek_invalid',
    `No key-encryption key is configured: put ${key_bytes} random bytes in base64 into a variable (openssl rand -base64 ${key_bytes}) and its name into STREAMING_HUB_KEK_REF.`,
  );
}

const hasCode = (error: unknown, code: string): boolean =>
  error instanceof Error && 'code' in error && error.code === code;

/** The key in `<data_dir>/kek`, readable by its owner only; made once. */
async function localKek(data_dir: string): Promise<NamedKek> {
  const path = join(data_dir, 'kek');
  const text = await readFile(path, 'utf8').catch(async (error: unknown) => {
    if (!hasCode(error, 'ENOENT')) throw error;
    await mkdir(data_dir, { recursive: true });
    await makeKekFile(path);
    return readFile(path, 'utf8');
  });
  const key = Buffer.from(text.trim(), 'base64');
  if (key.length !== key_bytes) {
    throw new KeyError(
      'kek_invalid',
      `${path} must hold ${key_bytes} bytes in base64; put the right file back, without it the stored secrets cannot be read.`,
    );
  }
  return { id: kekId(key), key };
}

/**
 * The key is written whole under another name and then linked, so two processes that start together
 * use the same key, and a crash leaves either the whole file or none.
 */
async function makeKekFile(path: string): Promise<void> {
  const draft = `${path}.${process.pid}.${randomBytes(4).toString('hex')}`;
  try {
    const file = await open(draft, 'wx', 0o600);
    try {
      await file.writeFile(`${randomBytes(key_bytes).toString('base64')}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
    await link(draft, path);
  } catch (error) {
    if (!hasCode(error, 'EEXIST')) throw error;
  } finally {
    await rm(draft, { force: true });
  }
}
