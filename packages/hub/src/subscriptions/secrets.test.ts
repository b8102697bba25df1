import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createKeyring, localKeyProvider } from '../keys/index.ts';
import { openSubscriptions, type SubscriptionsFixture, testKek } from './fixture.ts';
import { createSecretStore } from './secrets.ts';

let at: SubscriptionsFixture;
beforeAll(async () => void (at = await openSubscriptions()));
afterAll(() => at.close());

const tenant_id = 'tenant';
const create = () =>
  at.subscriptions.store.create(tenant_id, {
    destination: { url: 'https://a.example/' },
    event_types: ['*'],
  });
const rotate = (id: string, overlap_seconds: number) =>
  at.subscriptions.store.rotateSecret(tenant_id, id, overlap_seconds);
const versions = async (id: string) => {
  const text =
    'select version, expires_at from secrets where subscription_id = $1 order by version';
  return (await at.database.pool.query<{ version: number; expires_at: Date | null }>(text, [id]))
    .rows;
};

describe('rotation', () => {
  it('signs with both during the overlap, newest first, and with the new one after it', async () => {
    const { subscription, secret } = await create();
    const live = at.subscriptions.secrets.live;
    expect(await live(subscription)).toEqual([secret]);
    const rotated = await rotate(subscription.id, 3_600);
    expect(rotated.secret).toMatch(/^whsec_/);
    expect(rotated.subscription.version).toBeGreaterThan(subscription.version);
    expect(await live(rotated.subscription)).toEqual([rotated.secret, secret]);
    // The end of the old one comes.
    await at.database.pool.query(
      `update secrets set expires_at = now() + interval '30 milliseconds' where version = 1 and subscription_id = $1`,
      [subscription.id],
    );
    const elsewhere = at.another().subscriptions.secrets.live;
    await expect.poll(() => elsewhere(rotated.subscription)).toEqual([rotated.secret]);
  });

  it('ends the old one at once without an overlap', async () => {
    const { subscription } = await create();
    const rotated = await rotate(subscription.id, 0);
    expect(await at.subscriptions.secrets.live(rotated.subscription)).toEqual([rotated.secret]);
    expect(await versions(subscription.id)).toEqual([{ version: 2, expires_at: null }]);
  });

  it('never prolongs a secret that was to end earlier', async () => {
    const { subscription } = await create();
    await rotate(subscription.id, 60);
    const [first] = await versions(subscription.id);
    await rotate(subscription.id, 86_400);
    expect((await versions(subscription.id))[0]).toEqual(first);
  });

  it('keeps at most five live, and the newest of many at once', async () => {
    const { subscription } = await create();
    const rotated = await Promise.all(
      Array.from({ length: 7 }, () => rotate(subscription.id, 3_600)),
    );
    const kept = await versions(subscription.id);
    expect(kept.map((one) => one.version)).toEqual([4, 5, 6, 7, 8]);
    expect(kept.filter((one) => one.expires_at === null)).toHaveLength(1);
    const newest = rotated.toSorted((a, b) => b.subscription.version - a.subscription.version);
    const live = await at.subscriptions.secrets.live({
      id: subscription.id,
      version: Number.MAX_SAFE_INTEGER,
    });
    expect(live).toEqual(newest.slice(0, 5).map((one) => one.secret));
  });
});

describe('reading', () => {
  it('asks the database once for many, and then not at all until the version rises', async () => {
    const made = [await create(), await create(), await create()];
    const { subscriptions } = at.another();
    const query = at.database.pool.query.bind(at.database.pool);
    let queries = 0;
    const counted = Object.assign(Object.create(at.database.pool), {
      query: (...given: Parameters<typeof query>) => {
        queries += 1;
        return query(...given);
      },
    });
    const secrets = createSecretStore(counted, at.keys);
    const read = await Promise.all(made.map((one) => secrets.live(one.subscription)));
    expect(read).toEqual(made.map((one) => [one.secret]));
    expect(queries).toBe(1);
    const [first] = made;
    if (!first) throw new Error('nothing was made');
    expect(secrets.live(first.subscription)).toEqual([first.secret]);
    const rotated = await subscriptions.store.rotateSecret(tenant_id, first.subscription.id, 60);
    expect(secrets.live(first.subscription)).toEqual([first.secret]);
    expect(await secrets.live(rotated.subscription)).toEqual([rotated.secret, first.secret]);
    expect(queries).toBe(2);
  });

  it('never answers nothing: no secret, or the wrong key, is an error', async () => {
    const { subscription } = await create();
    const wrong = createSecretStore(
      at.database.pool,
      createKeyring(at.database.pool, localKeyProvider([testKek()])),
    );
    await expect(wrong.live(subscription)).rejects.toMatchObject({ code: 'kek_mismatch' });
    await at.database.pool.query('delete from secrets where subscription_id = $1', [
      subscription.id,
    ]);
    const empty = at.another().subscriptions.secrets;
    await expect(empty.live(subscription)).rejects.toMatchObject({ name: 'KeyError' });
  });

  it('stores nothing that can be read', async () => {
    const { subscription, secret } = await create();
    const text = `select row_to_json(s)::text as line, encode(s.sealed, 'escape') as sealed from secrets s where subscription_id = $1`;
    const [row] = (
      await at.database.pool.query<{ line: string; sealed: string }>(text, [subscription.id])
    ).rows;
    expect(`${row?.line}${row?.sealed}`).not.toContain(secret.slice(6, 30));
    expect(JSON.stringify(subscription)).not.toContain('whsec_');
  });
});
