import { type Receiver, respond, startReceiver } from '@streaming-hub/testkit';
import { uuidv7 } from 'uuidv7';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createEgress, createWebhookSink, type Egress } from '../attempt/index.ts';
import { systemClock } from '../base/index.ts';
import { openSubscriptions, type SubscriptionsFixture } from './fixture.ts';
import { createSubscriptions, type NewSubscription, type Subscriptions } from './index.ts';

/** Subscriptions with the real sink, in front of a real receiver. */
let at: SubscriptionsFixture;
let egress: Egress;
let receiver: Receiver;
let subscriptions: Subscriptions;

beforeAll(async () => {
  at = await openSubscriptions();
  receiver = await startReceiver();
  egress = createEgress({ allow_private: true, allow_http: true, clock: systemClock });
  const webhook = createWebhookSink({
    egress,
    header_prefix: 'X-Lerian-',
    timeout_ms: 2_000,
    user_agent: 'streaming-hub/test',
    show_private_excerpts: true,
    clock: systemClock,
    newId: uuidv7,
  });
  subscriptions = createSubscriptions({
    pool: at.database.pool,
    keys: at.keys,
    guard: egress,
    sinks: { webhook },
    type_prefix: 'studio.lerian.',
    log: { info() {}, error() {} },
  });
  await subscriptions.verifier.start();
});
afterAll(async () => {
  await subscriptions.verifier.stop();
  await egress.close();
  await receiver.close();
  await at.close();
});

async function create(path: string, more: Partial<NewSubscription> = {}) {
  const made = await subscriptions.store.create('tenant', {
    destination: { url: `${receiver.url}${path}` },
    event_types: ['*'],
    ...more,
  });
  receiver.useSecrets([made.secret]);
  subscriptions.verifier.nudge();
  return made;
}

async function settled(id: string) {
  await expect
    .poll(async () => (await subscriptions.store.get('tenant', id)).verification_state)
    .not.toBe('pending');
  return subscriptions.store.get('tenant', id);
}

describe('with the webhook sink', () => {
  it('proves a receiver that returns the challenge, signed', async () => {
    const { subscription } = await create('/good');
    expect(await settled(subscription.id)).toMatchObject({
      verification_state: 'active',
      allowed_rate_per_minute: null,
    });
    expect(
      receiver.probes.filter((probe) => probe.path === '/good').map((probe) => probe.signature),
    ).toEqual(['valid']);
  });

  it('says what is wrong, and takes the repaired one on request', async () => {
    receiver.scriptProbe('/deaf', respond.status(404));
    const { subscription } = await create('/deaf');
    const failed = await settled(subscription.id);
    expect(failed.verification_state).toBe('failed');
    expect(failed.verification_reason).toContain('404');
    receiver.scriptProbe('/deaf', respond.echoChallenge('plain'));
    const after = await subscriptions.verifier.verify('tenant', subscription.id);
    expect(after.verification_state).toBe('active');
  });

  it('gives a receiver that hangs its time-out and no more', async () => {
    receiver.scriptProbe('/hang', respond.hang());
    const { subscription } = await create('/hang', {
      destination: { url: `${receiver.url}/hang`, timeout_seconds: 1 },
    });
    expect(await settled(subscription.id)).toMatchObject({ verification_state: 'failed' });
  });

  it('keeps the rate that a handshake allows', async () => {
    receiver.scriptProbe('/shy', respond.allowOrigin('*', '120'));
    const { subscription } = await create('/shy', { verification_method: 'handshake' });
    expect(await settled(subscription.id)).toMatchObject({
      verification_state: 'active',
      allowed_rate_per_minute: 120,
    });
  });

  it('sends a sample that verifies with the old secret during the overlap', async () => {
    const { subscription, secret } = await create('/sample');
    const rotated = await subscriptions.store.rotateSecret('tenant', subscription.id, 60);
    for (const known of [secret, rotated.secret]) {
      receiver.useSecrets([known]);
      const tried = await subscriptions.test(rotated.subscription, AbortSignal.timeout(5_000));
      expect(tried).toMatchObject({ outcome: 'delivered', status: 200, error: null });
      const request = receiver.requests.findLast((one) => one.path === '/sample');
      expect(request?.signature).toBe('valid');
      expect(request?.headers).toMatchObject({
        'x-lerian-event-type': 'webhook.test',
        'ce-source': 'streaming-hub',
      });
    }
    receiver.script('/sample', respond.status(500));
    const failed = await subscriptions.test(rotated.subscription, AbortSignal.timeout(5_000));
    expect(failed).toMatchObject({ outcome: 'failed', status: 500 });
  });
});
