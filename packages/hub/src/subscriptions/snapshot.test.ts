import { afterAll, beforeAll, expect, it } from 'vitest';
import { openSubscriptions, type SubscriptionsFixture } from './fixture.ts';
import { readSubscriptionsByNumber, readSubscriptionsChangedSince } from './snapshot.ts';
import type { Subscription } from './types.ts';

let at: SubscriptionsFixture;
beforeAll(async () => void (at = await openSubscriptions()));
afterAll(() => at.close());

const create = async (tenant: string) =>
  (
    await at.subscriptions.store.create(tenant, {
      destination: { url: 'https://a.example/' },
      event_types: ['a.b'],
    })
  ).subscription;

it('reads by number, deleted ones too', async () => {
  const [one, two] = [await create('t1'), await create('t1')];
  await at.subscriptions.store.remove('t1', two.id);
  const found = await readSubscriptionsByNumber(at.database.pool, [
    one.number,
    two.number,
    999_999,
  ]);
  expect(found.map((each) => [each.id, each.deleted]).toSorted()).toEqual(
    [
      [one.id, false],
      [two.id, true],
    ].toSorted(),
  );
  expect(await readSubscriptionsByNumber(at.database.pool, [])).toEqual([]);
  expect(typeof found[0]?.version).toBe('number');
});

it('misses no change, whichever transaction commits first', async () => {
  const made = await Promise.all(Array.from({ length: 6 }, (_, n) => create(`writer-${n}`)));
  const seen = new Map<string, Subscription>();
  let version = 0;
  let writing = true;
  const read = async () => {
    for (const one of await readSubscriptionsChangedSince(at.database.pool, version)) {
      expect(one.version).toBeGreaterThan(version);
      version = one.version;
      seen.set(one.id, one);
    }
  };
  const writers = made.map(async (one) => {
    for (let n = 0; n < 15; n += 1)
      await at.subscriptions.store.change(one.tenant_id, one.id, { name: `name ${n}` });
  });
  const reader = (async () => {
    while (writing) await read();
  })();
  await Promise.all(writers);
  writing = false;
  await reader;
  await read();
  for (const one of made)
    expect(seen.get(one.id)).toEqual(await at.subscriptions.store.get(one.tenant_id, one.id));
});
