import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { createTestDatabase, type TestDatabase } from '@streaming-hub/testkit';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { kekId, type NamedKek } from '../settings/index.ts';
import {
  createKeyring,
  KekMismatch,
  KeyError,
  localKeyProvider,
  openKeyProvider,
} from './index.ts';

let database: TestDatabase;
beforeAll(async () => void (database = await createTestDatabase()));
afterAll(() => database.drop());

function newKek(): NamedKek {
  const key = randomBytes(32);
  return { id: kekId(key), key };
}
const keyring = (...keks: NamedKek[]) => createKeyring(database.pool, localKeyProvider(keks));
const caught = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => 'nothing thrown',
    (error: unknown) => error,
  );
const secret = 'whsec_c2VjcmV0IHRoYXQgbXVzdCBub3QgbGVhaw==';
const context = (tenant_id: string, subscription_id = 's1') =>
  ({ tenant_id, subscription_id, purpose: 'signing_secret' }) as const;

describe('keyring', () => {
  it('opens what it sealed, in another process too', async () => {
    const kek = newKek();
    const sealed = await keyring(kek).seal(context('t1'), secret);
    expect(await keyring(kek).unseal(context('t1'), sealed)).toBe(secret);
    expect(sealed.sealed.includes('whsec_')).toBe(false);
  });

  it('makes one data key per tenant when many ask at once', async () => {
    const kek = newKek();
    const rings = [keyring(kek), keyring(kek), keyring(kek)];
    const sealed = await Promise.all(
      rings.flatMap((ring) => [ring, ring].map((one) => one.seal(context('t2'), secret))),
    );
    const found = await database.pool.query(
      `select kek_id from tenant_keys where tenant_id = 't2'`,
    );
    expect(found.rows).toEqual([{ kek_id: kek.id }]);
    for (const one of sealed) expect(await keyring(kek).unseal(context('t2'), one)).toBe(secret);
  });

  it('refuses with the wrong key, names both keys, and leaks nothing', async () => {
    const [right, wrong] = [newKek(), newKek()];
    const sealed = await keyring(right).seal(context('t3'), secret);
    const error = await caught(keyring(wrong).unseal(context('t3'), sealed));
    expect(error).toBeInstanceOf(KekMismatch);
    expect(error).toMatchObject({ code: 'kek_mismatch', kek_id: right.id });
    expect((error as Error).message).toContain(wrong.id);
    const shown = inspect(error, { depth: 10, showHidden: true });
    for (const hidden of [secret, right.key.toString('base64'), wrong.key.toString('hex')]) {
      expect(shown).not.toContain(hidden);
    }
    expect(await caught(keyring(wrong).seal(context('t3'), secret))).toBeInstanceOf(KekMismatch);
  });

  it('looks at start whether every data key can be unwrapped', async () => {
    const [old, now] = [newKek(), newKek()];
    const mine = await createTestDatabase();
    try {
      const ring = (...keks: NamedKek[]) => createKeyring(mine.pool, localKeyProvider(keks));
      await ring(now).check();
      await ring(old).seal(context('t4'), secret);
      expect(await caught(ring(now).check())).toBeInstanceOf(KekMismatch);
      await ring(now, old).check();
    } finally {
      await mine.drop();
    }
  });

  it('unwraps with an older key and wraps with the first', async () => {
    const [old, now] = [newKek(), newKek()];
    const sealed = await keyring(old).seal(context('t5'), secret);
    const both = keyring(now, old);
    expect(await both.unseal(context('t5'), sealed)).toBe(secret);
    await both.seal(context('t6'), secret);
    const text = `select tenant_id, kek_id from tenant_keys where tenant_id in ('t5', 't6') order by 1`;
    expect((await database.pool.query(text)).rows).toEqual([
      { tenant_id: 't5', kek_id: old.id },
      { tenant_id: 't6', kek_id: now.id },
    ]);
  });

  it('binds a secret to its tenant, subscription and purpose', async () => {
    const ring = keyring(newKek());
    const sealed = await ring.seal(context('t7'), secret);
    await ring.seal(context('t8'), secret);
    const elsewhere = [
      context('t8'),
      context('t7', 's2'),
      { ...context('t7'), purpose: 'destination_credential' as const },
    ];
    for (const wrong of elsewhere) {
      const error = await caught(ring.unseal(wrong, sealed));
      expect(error).toBeInstanceOf(KeyError);
      expect(error).toMatchObject({ code: 'seal_broken' });
    }
  });

  it('notices every changed byte', async () => {
    const ring = keyring(newKek());
    const { key_id, sealed } = await ring.seal(context('t9'), secret);
    for (let at = 0; at < sealed.length; at += 1) {
      const changed = Buffer.from(sealed);
      changed[at] = (changed[at] ?? 0) ^ 1;
      expect(await caught(ring.unseal(context('t9'), { key_id, sealed: changed }))).toMatchObject({
        code: 'seal_broken',
      });
    }
    const cut = { key_id, sealed: sealed.subarray(0, 20) };
    expect(await caught(ring.unseal(context('t9'), cut))).toMatchObject({ code: 'seal_broken' });
  });

  it('tries again after a failure, and does not remember it', async () => {
    const kek = newKek();
    await keyring(kek).seal(context('t10'), secret);
    const provider = localKeyProvider([kek]);
    let away = true;
    const ring = createKeyring(database.pool, {
      ...provider,
      unwrap: (...of) =>
        away ? Promise.reject(new Error('the key service is away')) : provider.unwrap(...of),
    });
    expect(await caught(ring.seal(context('t10'), secret))).toMatchObject({
      message: 'the key service is away',
    });
    away = false;
    await ring.seal(context('t10'), secret);
  });
});

describe('where keys come from', () => {
  it('makes the local key once, for its owner only, also when two start together', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'kek-'));
    try {
      const data_dir = join(folder, 'not', 'there');
      const open = () => openKeyProvider({ keks: [], local: true, data_dir });
      const opened = await Promise.all([open(), open(), open()]);
      const later = await open();
      for (const one of opened) expect(one.kek_ids).toEqual(later.kek_ids);
      expect((await stat(join(data_dir, 'kek'))).mode & 0o777).toBe(0o600);
      await writeFile(join(data_dir, 'kek'), 'short');
      const error = await caught(open());
      expect(error).toMatchObject({ code: 'kek_invalid' });
      expect(await readFile(join(data_dir, 'kek'), 'utf8')).toBe('short');
    } finally {
      await rm(folder, { recursive: true });
    }
  });

  it('prefers configured keys, and makes none up outside local', async () => {
    const kek = newKek();
    const given = await openKeyProvider({ keks: [kek], local: true, data_dir: '/nowhere' });
    expect(given.kek_ids).toEqual([kek.id]);
    const none = openKeyProvider({ keks: [], local: false, data_dir: '/nowhere' });
    expect(await caught(none)).toMatchObject({ code: 'kek_invalid' });
    expect(() => localKeyProvider([{ id: 'short', key: Buffer.alloc(16) }])).toThrow(/32 bytes/);
  });
});
