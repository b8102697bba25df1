import { until } from '@streaming-hub/testkit';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openSubscriptions, type SubscriptionsFixture } from './fixture.ts';
import type { NewSubscription } from './types.ts';

let at: SubscriptionsFixture;
beforeAll(async () => void (at = await openSubscriptions()));
afterAll(() => at.close());

let tenants = 0;
const newTenant = () => `tenant-${(tenants += 1)}`;
const wish = (url: string, more: Partial<NewSubscription> = {}): NewSubscription => ({
  destination: { url },
  event_types: ['account.created'],
  ...more,
});
const create = async (tenant: string, given: NewSubscription) =>
  (await at.subscriptions.store.create(tenant, given)).subscription;
const code = (promise: Promise<unknown>) =>
  promise.then(
    () => 'nothing thrown',
    (error: unknown) => (error as { code: string }).code,
  );
const matches = async (number: number) => {
  const text =
    'select event_type, lane_id from subscription_matches where subscription_number = $1 order by 1';
  return (await at.database.pool.query<{ event_type: string; lane_id: number }>(text, [number]))
    .rows;
};
const activate = (id: string) =>
  at.database.pool.query(`update subscriptions set verification_state = 'active' where id = $1`, [
    id,
  ]);

describe('create', () => {
  it('fills in what may be left out', async () => {
    const made = await create(newTenant(), wish('https://a.example/hook'));
    expect(made).toMatchObject({
      name: null,
      kind: 'webhook',
      enabled: true,
      verification_state: 'pending',
      schema_major: null,
      origin: null,
      format: 'binary',
      ordering: 'fifo',
      hold_seconds: 30,
      max_in_flight: 1,
      retry_schedule_seconds: null,
      verification_method: 'challenge',
      disabled_reason: null,
      deleted: false,
    });
    expect(made.version).toBeGreaterThan(0);
  });

  it('knows for ever from not given, and gives parallel orderings room', async () => {
    const strict = await create(newTenant(), wish('https://a.example/', { hold_seconds: null }));
    expect(strict.hold_seconds).toBeNull();
    const keyed = await create(newTenant(), wish('https://a.example/', { ordering: 'keyed' }));
    expect(keyed.max_in_flight).toBe(16);
  });

  it.each<[string, string, NewSubscription]>([
    [
      'several in flight in order',
      'validation_failed',
      wish('https://a.example/', { max_in_flight: 2 }),
    ],
    [
      'a pattern inside a word',
      'validation_failed',
      wish('https://a.example/', { event_types: ['acc*.created'] }),
    ],
    [
      'a schedule that waits too long',
      'validation_failed',
      wish('https://a.example/', { retry_schedule_seconds: [36_001] }),
    ],
    [
      'a header of the hub',
      'validation_failed',
      { ...wish(''), destination: { url: 'https://a.example/', headers: { 'webhook-id': 'x' } } },
    ],
    ['an address the guard refuses', 'destination_refused', wish('https://inner.refused/')],
  ])('refuses %s', async (_, expected, given) => {
    const tenant = newTenant();
    expect(await code(create(tenant, given))).toBe(expected);
    expect(await at.subscriptions.store.list(tenant, { after_id: null, limit: 10 })).toEqual([]);
  });

  it('puts subscriptions that are created at the same moment for one address on one lane', async () => {
    const tenant = newTenant();
    const urls = [
      'https://a.example/h',
      'https://A.example:443/h',
      'HTTPS://a.EXAMPLE/h',
      'https://a.example/x/../h',
    ];
    const made = await Promise.all([...urls, ...urls].map((url) => create(tenant, wish(url))));
    expect(new Set(made.map((one) => one.lane_id)).size).toBe(1);
    const other = await create(newTenant(), wish('https://a.example/h'));
    expect(other.lane_id).not.toBe(made[0]?.lane_id);
  });
});

describe('list', () => {
  it('pages in the order of creation and ends', async () => {
    const tenant = newTenant();
    const ids: string[] = [];
    for (let n = 0; n < 5; n += 1)
      ids.push((await create(tenant, wish(`https://a.example/${n}`))).id);
    const { store } = at.subscriptions;
    const first = await store.list(tenant, { after_id: null, limit: 3 });
    const rest = await store.list(tenant, { after_id: first[2]?.id ?? '', limit: 3 });
    expect([...first, ...rest].map((one) => one.id)).toEqual(ids);
  });
});

describe('another tenant', () => {
  it('finds, changes and sees nothing', async () => {
    const mine = await create(newTenant(), wish('https://a.example/'));
    const stranger = newTenant();
    const { store, verifier } = at.subscriptions;
    const before = await store.get(mine.tenant_id, mine.id);
    expect(await code(store.get(stranger, mine.id))).toBe('not_found');
    expect(await code(store.change(stranger, mine.id, { enabled: false }))).toBe('not_found');
    expect(await code(store.remove(stranger, mine.id))).toBe('not_found');
    expect(await code(store.rotateSecret(stranger, mine.id, 0))).toBe('not_found');
    expect(await code(verifier.verify(stranger, mine.id))).toBe('not_found');
    expect(await store.list(stranger, { after_id: null, limit: 10 })).toEqual([]);
    expect(await store.get(mine.tenant_id, mine.id)).toEqual(before);
    const keys = await at.database.pool.query('select 1 from tenant_keys where tenant_id = $1', [
      stranger,
    ]);
    expect(keys.rowCount).toBe(0);
  });
});

describe('change', () => {
  it('keeps what it does not name, inside the destination too', async () => {
    const tenant = newTenant();
    const made = await create(tenant, {
      ...wish('https://a.example/', { name: 'one', origin: 'midaz' }),
      destination: { url: 'https://a.example/', headers: { 'X-Env': 'prod' }, timeout_seconds: 5 },
    });
    const changed = await at.subscriptions.store.change(tenant, made.id, {
      destination: { timeout_seconds: 9 },
    });
    expect(changed.destination).toEqual({
      url: 'https://a.example/',
      headers: { 'X-Env': 'prod' },
      timeout_seconds: 9,
    });
    expect(changed).toMatchObject({ name: 'one', origin: 'midaz', verification_state: 'pending' });
    expect(changed.version).toBeGreaterThan(made.version);
  });

  it('writes nothing when nothing changes', async () => {
    const tenant = newTenant();
    const made = await create(tenant, wish('https://a.example/'));
    const changed = await at.subscriptions.store.change(tenant, made.id, {
      name: null,
      event_types: ['account.created'],
    });
    expect(changed.version).toBe(made.version);
  });

  it('gives a new ordering its own room', async () => {
    const tenant = newTenant();
    const made = await create(tenant, wish('https://a.example/'));
    const { store } = at.subscriptions;
    expect((await store.change(tenant, made.id, { ordering: 'unordered' })).max_in_flight).toBe(16);
    expect((await store.change(tenant, made.id, { ordering: 'fifo' })).max_in_flight).toBe(1);
    expect(await code(store.change(tenant, made.id, { max_in_flight: 3 }))).toBe(
      'validation_failed',
    );
  });

  it('asks for a new proof when the address changes, and not when only its spelling does', async () => {
    const tenant = newTenant();
    const made = await create(tenant, wish('https://a.example/h'));
    await activate(made.id);
    const { store } = at.subscriptions;
    const respelled = await store.change(tenant, made.id, {
      destination: { url: 'https://A.example:443/h' },
    });
    expect(respelled).toMatchObject({ verification_state: 'active', lane_id: made.lane_id });
    expect(respelled.destination.url).toBe('https://A.example:443/h');
    const moved = await store.change(tenant, made.id, {
      destination: { url: 'https://a.example/h?v=2' },
    });
    expect(moved.verification_state).toBe('pending');
    expect(await matches(made.number)).toEqual([]);
  });

  it('moves the lane with its only subscription', async () => {
    const tenant = newTenant();
    const made = await create(tenant, wish('https://a.example/'));
    const gone = await create(tenant, wish('https://a.example/'));
    await at.subscriptions.store.remove(tenant, gone.id);
    const moved = await at.subscriptions.store.change(tenant, made.id, {
      destination: { url: 'https://b.example/' },
    });
    expect(moved.lane_id).toBe(made.lane_id);
    const again = await create(tenant, wish('https://a.example/'));
    expect(again.lane_id).not.toBe(made.lane_id);
  });

  it('moves the subscription when others use the lane, or the new address has one', async () => {
    const tenant = newTenant();
    const [one, two, three] = [
      await create(tenant, wish('https://a.example/')),
      await create(tenant, wish('https://a.example/')),
      await create(tenant, wish('https://b.example/')),
    ];
    const { store } = at.subscriptions;
    const first = await store.change(tenant, one.id, {
      destination: { url: 'https://c.example/' },
    });
    expect([two.lane_id, three.lane_id]).not.toContain(first.lane_id);
    const second = await store.change(tenant, two.id, {
      destination: { url: 'https://b.example/' },
    });
    expect(second.lane_id).toBe(three.lane_id);
  });

  it('never splits or mixes addresses under concurrent moves', async () => {
    const tenant = newTenant();
    const urls = ['https://a.example/', 'https://b.example/', 'https://c.example/'] as const;
    const made = await Promise.all(urls.map((url) => create(tenant, wish(url))));
    for (let round = 0; round < 5; round += 1) {
      await Promise.all([
        ...made.map((one, n) =>
          at.subscriptions.store.change(tenant, one.id, {
            destination: { url: urls[(n + round) % 3] ?? urls[0] },
          }),
        ),
        create(tenant, wish(urls[round % 3] ?? urls[0])),
      ]);
    }
    const found = await at.database.pool.query<{ url: string; address: string }>(
      `select s.destination->>'url' as url, l.address from subscriptions s join lanes l on l.id = s.lane_id where s.tenant_id = $1`,
      [tenant],
    );
    expect(found.rows).toHaveLength(8);
    for (const row of found.rows) expect(row.address).toBe(row.url);
  });
});

describe('switching off and on', () => {
  async function parked(number: number, lane_id: number) {
    await at.database.pool.query(
      /* sql */ `
      insert into retries (lane_id, seq, subscription_number, tenant_id, ce_id, shard, state, attempts, due_at)
      values ($1, 5, $2, 'tenant', '018f0000-0000-7000-8000-000000000000', $1 % 64, 'parked', 3, now() + interval '1 day')`,
      [lane_id, number],
    );
  }
  const retry = async (number: number) => {
    const text = 'select state, due_at <= now() as due from retries where subscription_number = $1';
    return (await at.database.pool.query<{ state: string; due: boolean }>(text, [number])).rows[0];
  };

  it('parks nothing itself, and brings parked deliveries back with the switch', async () => {
    const tenant = newTenant();
    const made = await create(tenant, wish('https://a.example/'));
    await activate(made.id);
    expect(await matches(made.number)).toHaveLength(1);
    const { store } = at.subscriptions;
    const off = await store.change(tenant, made.id, { enabled: false });
    expect(off).toMatchObject({
      enabled: false,
      disabled_reason: null,
      verification_state: 'active',
    });
    expect(await matches(made.number)).toEqual([]);
    await parked(made.number, made.lane_id);

    const listener = await at.database.pool.connect();
    const heard: string[] = [];
    listener.on('notification', (message) => heard.push(message.channel));
    await listener.query('listen hub_retries');
    await store.change(tenant, made.id, { name: 'still off' });
    expect(await retry(made.number)).toEqual({ state: 'parked', due: false });
    await store.change(tenant, made.id, { enabled: true });
    expect(await retry(made.number)).toEqual({ state: 'scheduled', due: true });
    await until(async () => {
      await listener.query('select 1');
      return heard.includes('hub_retries');
    });
    listener.release(true);
    expect(await matches(made.number)).toHaveLength(1);
  });

  it("takes the hub's reason away when the owner uses the switch", async () => {
    const tenant = newTenant();
    const made = await create(tenant, wish('https://a.example/'));
    await at.database.pool.query(
      `update subscriptions set enabled = false, disabled_reason = 'gone' where id = $1`,
      [made.id],
    );
    const { store } = at.subscriptions;
    expect((await store.change(tenant, made.id, { name: 'x' })).disabled_reason).toBe('gone');
    expect((await store.change(tenant, made.id, { enabled: false })).disabled_reason).toBeNull();
  });
});

describe('remove', () => {
  it('hides it, ends its matches and destroys its secrets', async () => {
    const tenant = newTenant();
    const made = await create(tenant, wish('https://a.example/'));
    await activate(made.id);
    const { store } = at.subscriptions;
    await store.remove(tenant, made.id);
    expect(await code(store.get(tenant, made.id))).toBe('not_found');
    expect(await code(store.remove(tenant, made.id))).toBe('not_found');
    expect(await store.list(tenant, { after_id: null, limit: 10 })).toEqual([]);
    expect(await matches(made.number)).toEqual([]);
    const kept = await at.database.pool.query('select 1 from secrets where subscription_id = $1', [
      made.id,
    ]);
    expect(kept.rowCount).toBe(0);
  });
});
