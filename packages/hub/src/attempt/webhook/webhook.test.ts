import { newWebhookSecret } from '@streaming-hub/contract';
import type { Receiver } from '@streaming-hub/testkit';
import {
  makeReceiverCertificate,
  respond,
  startFaultProxy,
  startReceiver,
} from '@streaming-hub/testkit';
import { Webhook } from 'standardwebhooks';
import { uuidv7 } from 'uuidv7';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../base/index.ts';
import type { StoredEvent } from '../../inbox/index.ts';
import type { Subscription } from '../../subscriptions/index.ts';
import type { Egress } from '../egress/index.ts';
import { createEgress } from '../egress/index.ts';
import type { AttemptResult, Sink } from '../port.ts';
import type { WebhookSinkOptions } from './index.ts';
import { createWebhookSink } from './index.ts';

const secret = newWebhookSecret();
const never = new AbortController().signal;
let receiver: Receiver;
let egress: Egress;

beforeAll(async () => {
  receiver = await startReceiver();
  receiver.useSecrets([secret]);
  egress = createEgress({ allow_private: true, allow_http: true, clock: systemClock });
});
afterAll(async () => {
  await egress.close();
  await receiver.close();
});

function sinkWith(options: Partial<WebhookSinkOptions> = {}): Sink {
  return createWebhookSink({
    egress,
    header_prefix: 'X-Lerian-',
    timeout_ms: 5_000,
    user_agent: 'streaming-hub/test',
    clock: systemClock,
    newId: uuidv7,
    show_private_excerpts: true,
    ...options,
  });
}

function subscriptionTo(url: string, overrides: Partial<Subscription> = {}): Subscription {
  const now = new Date();
  return {
    id: uuidv7(),
    number: 1,
    tenant_id: 'tenant-a',
    name: null,
    kind: 'webhook',
    enabled: true,
    verification_state: 'active',
    verification_reason: null,
    destination: { url },
    lane_id: 1,
    event_types: ['*'],
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
    version: 1,
    created_at: now,
    updated_at: now,
    ...overrides,
  } as Subscription;
}

function event(body: Buffer | null = Buffer.from('{"amount":"10.00","note":"grün"}')): StoredEvent {
  const id = uuidv7();
  return {
    tenant_id: 'tenant-a',
    id,
    sequence: Date.now() * 1000,
    origin: 'midaz',
    event_type: 'transaction.created',
    attributes: {
      specversion: '1.0',
      id,
      source: 'midaz',
      type: 'studio.lerian.midaz.transaction.created',
      time: '2026-03-01T12:00:00Z',
      resourcetype: 'transaction',
      eventtype: 'created',
      tenantid: 'tenant-a',
      datacontenttype: 'application/json',
    },
    body,
  };
}

function attempt(
  url: string,
  options: {
    sink?: Sink;
    timeout_seconds?: number;
    secrets?: readonly string[];
    event?: StoredEvent;
    signal?: AbortSignal;
  } = {},
): Promise<AttemptResult> {
  const destination = { url, timeout_seconds: options.timeout_seconds ?? 5 };
  return (options.sink ?? sinkWith()).attempt(
    {
      subscription: subscriptionTo(url, { destination }),
      event: options.event ?? event(),
      secrets: options.secrets ?? [secret],
      attempt: 1,
      delivery_attempt_id: uuidv7(),
      replay_id: null,
    },
    options.signal ?? never,
  );
}

describe('an attempt', () => {
  it('delivers the stored bytes with a signature a foreign library accepts', async () => {
    const sent = event();
    const result = await attempt(`${receiver.url}/signed?x=1`, { event: sent });
    expect(result).toMatchObject({ outcome: 'delivered', blame: null, status: 200, error: null });
    const got = receiver.requests.findLast((request) => request.path === '/signed');
    expect(got?.signature).toBe('valid');
    expect(got?.body).toEqual(sent.body);
    expect(got?.headers).toMatchObject({
      'content-type': 'application/json',
      'user-agent': 'streaming-hub/test',
      'x-lerian-event-id': sent.id,
      'x-lerian-event-type': 'transaction.created',
      'x-lerian-attempt': '1',
      'ce-source': 'midaz',
    });
    const verified = new Webhook(secret).verify(
      String(got?.body),
      got?.headers as Record<string, string>,
    );
    expect(verified).toEqual({ amount: '10.00', note: 'grün' });
  });

  it('is signed with every live secret during a rotation', async () => {
    const [newer, older] = [newWebhookSecret(), newWebhookSecret()];
    await attempt(`${receiver.url}/rotation`, { secrets: [newer, older] });
    const got = receiver.requests.findLast((request) => request.path === '/rotation');
    for (const key of [newer, older]) {
      const headers = got?.headers as Record<string, string>;
      expect(() => new Webhook(key).verify(String(got?.body), headers)).not.toThrow();
    }
  });

  it('of an event without a body sends none', async () => {
    const result = await attempt(`${receiver.url}/empty`, { event: event(null) });
    expect(result.outcome).toBe('delivered');
    const got = receiver.requests.findLast((request) => request.path === '/empty');
    expect(got?.body.length).toBe(0);
    expect(got?.headers['content-length']).toBe('0');
    expect(got?.signature).toBe('valid');
  });

  it('is one request, whatever happens to it', async () => {
    const before = receiver.received;
    receiver.script('/once', respond.reset());
    for (let count = 0; count < 5; count += 1) {
      await attempt(`${receiver.url}/warm`);
      expect((await attempt(`${receiver.url}/once`)).outcome).toBe('failed');
    }
    expect(receiver.received - before).toBe(10);
  });

  it('reports timings and the start of the answer', async () => {
    receiver.script('/answer', respond.status(200, { body: 'thank you', delay_ms: 20 }));
    const result = await attempt(`${receiver.url}/answer`);
    expect(result.response_excerpt).toBe('thank you');
    expect(result.timings.first_byte_ms).toBeGreaterThan(10);
    expect(result.timings.total_ms).toBeGreaterThanOrEqual(result.timings.first_byte_ms ?? 0);
  });

  it('hides what a private target answers unless told otherwise', async () => {
    receiver.script('/secret', respond.status(500, { body: 'internal details' }));
    const hidden = await attempt(`${receiver.url}/secret`, {
      sink: sinkWith({ show_private_excerpts: false }),
    });
    expect(hidden).toMatchObject({ status: 500, response_excerpt: null });
  });

  it('ends with the signal and blames the hub', async () => {
    receiver.script('/hang', respond.hang());
    const result = await attempt(`${receiver.url}/hang`, { signal: AbortSignal.timeout(50) });
    expect(result).toMatchObject({ outcome: 'failed', blame: 'hub', error: { code: 'aborted' } });
  });

  it('without a secret is never sent', async () => {
    const before = receiver.received;
    const result = await attempt(receiver.url, { secrets: [] });
    expect(result).toMatchObject({ outcome: 'failed', blame: 'hub', error: { code: 'hub_error' } });
    expect(receiver.received).toBe(before);
  });

  it('to a forbidden URL is refused without a request', async () => {
    const result = await attempt('http://169.254.169.254/latest/meta-data');
    expect(result).toMatchObject({ blame: 'receiver', error: { code: 'egress_refused' } });
  });
});

describe('what the receiver answers', () => {
  it.each([
    ['a server error', respond.status(500, { body: 'no' }), 500, 'status'],
    ['a client error', respond.status(422), 422, 'status'],
    ['a redirect', respond.status(301, { headers: { location: '/other' } }), 301, 'redirect'],
    ['a temporary redirect', respond.status(307, { headers: { location: '/o' } }), 307, 'redirect'],
  ])('%s fails the attempt', async (name, behaviour, status, code) => {
    const path = `/${name.replaceAll(' ', '-')}`;
    receiver.script(path, behaviour);
    const before = receiver.received;
    const result = await attempt(receiver.url + path);
    expect(result).toMatchObject({ outcome: 'failed', blame: 'receiver', status, error: { code } });
    expect(receiver.received - before).toBe(1);
  });

  it.each([301, 302, 303, 307, 308])('%i towards metadata is not followed', async (status) => {
    const location = 'http://169.254.169.254/latest/meta-data';
    receiver.script('/away', respond.status(status, { headers: { location } }));
    const result = await attempt(`${receiver.url}/away`);
    expect(result).toMatchObject({ outcome: 'failed', status, error: { code: 'redirect' } });
  });

  it('410 ends the subscription', async () => {
    receiver.script('/gone', respond.status(410));
    expect(await attempt(`${receiver.url}/gone`)).toMatchObject({
      outcome: 'gone',
      blame: 'receiver',
      error: { code: 'gone' },
    });
  });

  it('429 says when to come back', async () => {
    receiver.script('/busy', respond.status(429, { headers: { 'retry-after': '17' } }));
    expect((await attempt(`${receiver.url}/busy`)).retry_after_seconds).toBe(17);
  });

  it('an endless body after 2xx counts as delivered, and is not read to its end', async () => {
    receiver.script('/endless', respond.endlessBody());
    const result = await attempt(`${receiver.url}/endless`);
    expect(result).toMatchObject({ outcome: 'delivered', status: 200 });
    expect(result.response_excerpt).toHaveLength(4096);
  });
});

describe('a receiver that misbehaves', () => {
  it.each([
    ['hangs', respond.hang(), 'timeout', /did not answer within/],
    ['sends headers for ever', respond.slowHeaders(), 'timeout', /did not answer within/],
    ['only says it works on it', respond.endlessInformation(), 'timeout', /did not answer within/],
    ['sends a body for ever', respond.slowBody(), 'timeout', /answered 200, but its body/],
    ['resets', respond.reset(), 'connection_reset', /closed/],
    ['hangs up', respond.hangUp(), 'connection_reset', /closed/],
    ['half closes', respond.halfOpen(), 'connection_reset', /closed/],
    ['sends half a body', respond.cutBody(), 'connection_reset', /before the answer was complete/],
    ['does not speak HTTP', respond.garbage(), 'bad_response', /valid HTTP/],
    ['sends huge headers', respond.hugeHeaders(100_000), 'bad_response', /headers .* too large/],
    [
      'breaks the chunk format',
      respond.raw('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n', false),
      'bad_response',
      /valid HTTP/,
    ],
    [
      'switches protocols unasked',
      respond.raw('HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n', false),
      'bad_response',
      /valid HTTP/,
    ],
    [
      'announces two lengths',
      respond.raw('HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nabc', false),
      'bad_response',
      /another length|valid HTTP/,
    ],
  ])('and %s gives one classified failure', async (name, behaviour, code, message) => {
    const path = `/mis-${name.replaceAll(' ', '-')}`;
    receiver.script(path, behaviour);
    const started_ms = performance.now();
    const result = await attempt(receiver.url + path, { timeout_seconds: 0.3 });
    expect(result).toMatchObject({ outcome: 'failed', blame: 'receiver', error: { code } });
    expect(result.error?.message).toMatch(message);
    expect(performance.now() - started_ms).toBeLessThan(2_000);
    // The next one gets a clean connection.
    expect((await attempt(`${receiver.url}/fine`)).outcome).toBe('delivered');
  });

  it('and is not there gives connect_refused, and works again once it is', async () => {
    const own = await startReceiver();
    expect((await attempt(own.url)).outcome).toBe('delivered');
    await own.down();
    expect((await attempt(own.url)).error?.code).toBe('connect_refused');
    await own.up();
    expect((await attempt(own.url)).outcome).toBe('delivered');
    await own.close();
  });

  it('and swallows packets gives timeout, and works again afterwards', async () => {
    const proxy = await startFaultProxy(receiver.port);
    const url = `http://127.0.0.1:${proxy.port}/`;
    expect((await attempt(url)).outcome).toBe('delivered');
    proxy.set({ mode: 'blackhole' });
    expect((await attempt(url, { timeout_seconds: 0.2 })).error?.code).toBe('timeout');
    proxy.set({ mode: 'cut' });
    expect((await attempt(url)).error?.code).toBe('connection_reset');
    proxy.set({ mode: 'delay', delay_ms: 30 });
    const slow = await attempt(url);
    expect(slow.outcome).toBe('delivered');
    expect(slow.timings.total_ms).toBeGreaterThan(55);
    proxy.set({ mode: 'pass' });
    expect((await attempt(url)).outcome).toBe('delivered');
    await proxy.close();
  });

  it('and has a certificate nobody trusts gives tls_failed', async () => {
    const own = await startReceiver({ tls: await makeReceiverCertificate() });
    const result = await attempt(own.url);
    expect(result).toMatchObject({ blame: 'receiver', error: { code: 'tls_failed' } });
    expect(own.received).toBe(0);
    await own.close();
  });
});

describe('a probe', () => {
  const probe = (path: string, method: 'challenge' | 'handshake' = 'challenge') =>
    sinkWith().probe(
      subscriptionTo(receiver.url + path, { verification_method: method }),
      [secret],
      never,
    );

  it.each(['json', 'plain'] as const)('by challenge passes with an echo as %s', async (form) => {
    receiver.scriptProbe('/echo', respond.echoChallenge(form));
    expect(await probe('/echo')).toMatchObject({ verified: true, allowed_rate_per_minute: null });
    expect(receiver.probes.at(-1)).toMatchObject({ method: 'POST', signature: 'valid' });
  });

  it.each([
    ['no echo', respond.ok(), /did not return the challenge/],
    ['another value', respond.ok({ body: '{"challenge":"no"}' }), /did not return the challenge/],
    ['an error', respond.status(500), /answered 500; 2xx is needed/],
    ['a redirect', respond.status(302, { headers: { location: '/' } }), /give the final URL/],
    ['a reset', respond.reset(), /closed the connection/],
  ])('by challenge fails with %s and says why', async (_name, behaviour, reason) => {
    receiver.scriptProbe('/refuses', behaviour);
    const result = await probe('/refuses');
    expect(result.verified).toBe(false);
    expect(result.reason).toMatch(reason);
  });

  it.each([
    ['any origin', respond.allowOrigin('*'), true, null, /without a rate limit/],
    ['our origin', respond.allowOrigin('Streaming-Hub', '120'), true, 120, /120 deliveries/],
    ['any rate', respond.allowOrigin('*', '*'), true, null, /without a rate limit/],
    ['another origin', respond.allowOrigin('other.example'), false, null, /allows other\.example/],
    ['no rate at all', respond.allowOrigin('*', '0'), false, null, /Allowed-Rate/],
    ['nonsense as rate', respond.allowOrigin('*', 'many'), false, null, /Allowed-Rate/],
    ['no header', respond.ok(), false, null, /no WebHook-Allowed-Origin/],
    ['405', respond.status(405), false, null, /answered 405/],
  ])('by handshake judges %s', async (_name, behaviour, verified, rate, reason) => {
    receiver.scriptProbe('/handshake', behaviour);
    const result = await probe('/handshake', 'handshake');
    expect(result).toMatchObject({ verified, allowed_rate_per_minute: rate });
    expect(result.reason).toMatch(reason);
    expect(receiver.probes.at(-1)?.headers).toMatchObject({
      'webhook-request-origin': 'streaming-hub',
      'webhook-request-rate': expect.stringMatching(/^\d+$/),
    });
  });

  it('of a forbidden URL fails without a request', async () => {
    const result = await sinkWith().probe(subscriptionTo('ftp://x/'), [secret], never);
    expect(result).toMatchObject({ verified: false, reason: expect.stringMatching(/https/) });
  });
});
