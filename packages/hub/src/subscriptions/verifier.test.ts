import { until } from '@streaming-hub/testkit';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openSubscriptions, type SubscriptionsFixture } from './fixture.ts';
import type { NewSubscription } from './types.ts';

let at: SubscriptionsFixture;
beforeEach(async () => void (at = await openSubscriptions()));
afterEach(async () => {
  await at.subscriptions.verifier.stop();
  await at.close();
});

const wish = (url = 'https://a.example/'): NewSubscription => ({
  destination: { url },
  event_types: ['*'],
});
const create = async (tenant = 'tenant', url?: string) =>
  (await at.subscriptions.store.create(tenant, wish(url))).subscription;
const state = async (id: string, tenant = 'tenant') => {
  const now = await at.subscriptions.store.get(tenant, id);
  return {
    state: now.verification_state,
    reason: now.verification_reason,
    enabled: now.enabled,
    disabled_reason: now.disabled_reason,
  };
};
const settled = (id: string, tenant?: string) =>
  until(async () => {
    const now = await state(id, tenant);
    return now.state === 'pending' ? null : now;
  });
const set = (id: string, assignments: string) =>
  at.database.pool.query(`update subscriptions set ${assignments} where id = $1`, [id]);

describe('in the background', () => {
  it('proves what is created, with its secret, and stores why', async () => {
    await at.subscriptions.verifier.start();
    const { subscription, secret } = await at.subscriptions.store.create('tenant', wish());
    at.subscriptions.verifier.nudge();
    expect(await settled(subscription.id)).toMatchObject({
      state: 'active',
      reason: 'The receiver returned the challenge.',
    });
    expect(at.sink.probes.map((probe) => probe.secrets)).toEqual([[secret]]);
    expect(
      (await at.subscriptions.store.get('tenant', subscription.id)).verified_at,
    ).toBeInstanceOf(Date);
    expect((await at.database.pool.query('select 1 from probe_claims')).rowCount).toBe(0);
  });

  it('stores why it failed, and probes again what was repaired', async () => {
    at.sink.answer = async () => ({ verified: false, reason: 'The receiver answered 500.' });
    await at.subscriptions.verifier.start();
    const made = await create();
    expect(await settled(made.id)).toMatchObject({
      state: 'failed',
      reason: 'The receiver answered 500.',
      enabled: true,
    });
    at.sink.answer = async () => ({ verified: true, reason: 'ok' });
    await at.subscriptions.store.change('tenant', made.id, {
      destination: { headers: { 'X-Key': 'k' } },
    });
    expect(await settled(made.id)).toMatchObject({ state: 'active' });
  });

  it('takes up what a process that died left behind', async () => {
    const made = await create();
    await at.database.pool.query(
      `insert into probe_claims values ($1, now() + interval '200 milliseconds')`,
      [made.number],
    );
    await at.subscriptions.verifier.start();
    expect(await settled(made.id)).toMatchObject({ state: 'active' });
  });

  it('probes each one once, however many processes look', async () => {
    const others = [at.another(), at.another()];
    const made = await Promise.all(Array.from({ length: 12 }, (_, n) => create(`tenant-${n % 4}`)));
    const all = [at, ...others];
    await Promise.all(all.map((one) => one.subscriptions.verifier.start()));
    for (const one of made) await settled(one.id, one.tenant_id);
    await Promise.all(others.map((one) => one.subscriptions.verifier.stop()));
    const probed = all.flatMap((one) => one.sink.probes.map((probe) => probe.subscription.id));
    expect(probed.toSorted()).toEqual(made.map((one) => one.id).toSorted());
  });

  it('lets hanging destinations of one tenant hold up nobody else', async () => {
    at.sink.answer = (subscription, signal) =>
      subscription.tenant_id === 'hanging'
        ? new Promise((resolve) =>
            signal.addEventListener('abort', () =>
              resolve({ verified: false, reason: 'no answer' }),
            ),
          )
        : Promise.resolve({ verified: true, reason: 'ok' });
    const hanging = await Promise.all(Array.from({ length: 30 }, () => create('hanging')));
    const healthy = await create('healthy');
    await at.subscriptions.verifier.start();
    expect(await settled(healthy.id, 'healthy')).toMatchObject({ state: 'active' });
    expect(
      at.sink.probes.filter((probe) => probe.subscription.tenant_id === 'hanging').length,
    ).toBeLessThanOrEqual(4);
    await at.subscriptions.verifier.stop();
    // Our own stop says nothing about the receivers: all of them are still to be probed, at once.
    for (const one of hanging) expect((await state(one.id, 'hanging')).state).toBe('pending');
    const claims = await at.database.pool.query(
      'select 1 from probe_claims where claimed_until > now()',
    );
    expect(claims.rowCount).toBe(0);
  });

  it('throws away what it learned about an address that has changed meanwhile', async () => {
    let answer: (result: { verified: boolean; reason: string }) => void = () => {};
    at.sink.answer = (subscription) =>
      subscription.destination.url === 'https://old.example/'
        ? new Promise((resolve) => (answer = resolve))
        : Promise.resolve({ verified: true, reason: 'new one' });
    const made = await create('tenant', 'https://old.example/');
    await at.subscriptions.verifier.start();
    await until(() => at.sink.probes.length === 1);
    await at.subscriptions.store.change('tenant', made.id, {
      destination: { url: 'https://new.example/' },
    });
    answer({ verified: false, reason: 'old one' });
    expect(await settled(made.id)).toMatchObject({ state: 'active', reason: 'new one' });
  });

  it('leaves it pending when the hub itself fails, and comes back to it', async () => {
    at.sink.answer = () => {
      throw new Error('a fault of ours');
    };
    const made = await create();
    await at.subscriptions.verifier.start();
    const claim = () =>
      at.database.pool.query(
        `select 1 from probe_claims where claimed_until < now() + interval '11 seconds'`,
      );
    await until(async () => at.sink.probes.length === 1 && (await claim()).rowCount === 1);
    expect((await state(made.id)).state).toBe('pending');
    at.sink.answer = async () => ({ verified: true, reason: 'ok' });
    await at.database.pool.query('update probe_claims set claimed_until = now()');
    expect(await settled(made.id)).toMatchObject({ state: 'active' });
  });

  it('starts and stops any number of times, at the same moment too', async () => {
    const { verifier } = at.subscriptions;
    await verifier.stop();
    for (let round = 0; round < 20; round += 1) {
      await Promise.all([
        verifier.start(),
        verifier.start(),
        verifier.stop(),
        verifier.start(),
        verifier.stop(),
      ]);
    }
    await verifier.start();
    expect(await settled((await create()).id)).toMatchObject({ state: 'active' });
    await verifier.stop();
    const last = await create();
    verifier.nudge();
    expect((await state(last.id)).state).toBe('pending');
  });
});

describe('on request', () => {
  it('waits for the result', async () => {
    const made = await create();
    const after = await at.subscriptions.verifier.verify('tenant', made.id);
    expect(after).toMatchObject({
      verification_state: 'active',
      verification_reason: 'The receiver returned the challenge.',
    });
  });

  it('switches on what the hub had switched off, and not what its owner had', async () => {
    const made = await create();
    await set(made.id, `verification_state = 'active', enabled = false, disabled_reason = 'gone'`);
    const back = await at.subscriptions.verifier.verify('tenant', made.id);
    expect(back).toMatchObject({
      enabled: true,
      disabled_reason: null,
      verification_state: 'active',
    });
    await at.subscriptions.store.change('tenant', made.id, { enabled: false });
    const off = await at.subscriptions.verifier.verify('tenant', made.id);
    expect(off).toMatchObject({ enabled: false, verification_state: 'active' });
  });

  it('changes nothing but the reason when it fails', async () => {
    const made = await create();
    await set(
      made.id,
      `verification_state = 'active', enabled = false, disabled_reason = 'auto_disabled'`,
    );
    at.sink.answer = async () => ({ verified: false, reason: 'The receiver answered 500.' });
    const after = await at.subscriptions.verifier.verify('tenant', made.id);
    expect(after).toMatchObject({
      enabled: false,
      disabled_reason: 'auto_disabled',
      verification_state: 'active',
    });
    expect(after.verification_reason).toMatch(/last one failed: The receiver answered 500\.$/);
  });

  it('in the background only proves, and does not switch on', async () => {
    const made = await create();
    await set(made.id, `enabled = false, disabled_reason = 'gone'`);
    await at.subscriptions.verifier.start();
    expect(await settled(made.id)).toMatchObject({
      state: 'active',
      enabled: false,
      disabled_reason: 'gone',
    });
  });

  it('brings parked deliveries back when it passes', async () => {
    const made = await create();
    await set(
      made.id,
      `verification_state = 'active', enabled = false, disabled_reason = 'auto_disabled'`,
    );
    await at.database.pool.query(
      /* sql */ `
      insert into retries (lane_id, seq, subscription_number, tenant_id, ce_id, shard, state, attempts, due_at)
      values ($1, 5, $2, 'tenant', '018f0000-0000-7000-8000-000000000000', $1 % 64, 'parked', 3, now() + interval '1 day')`,
      [made.lane_id, made.number],
    );
    await at.subscriptions.verifier.verify('tenant', made.id);
    const found = await at.database.pool.query('select state from retries where due_at <= now()');
    expect(found.rows).toEqual([{ state: 'scheduled' }]);
  });

  it('says so when the hub cannot probe', async () => {
    const made = await create();
    at.sink.answer = () => {
      throw new Error('a fault of ours');
    };
    await expect(at.subscriptions.verifier.verify('tenant', made.id)).rejects.toMatchObject({
      code: 'unavailable',
    });
    expect((await state(made.id)).state).toBe('pending');
  });
});
