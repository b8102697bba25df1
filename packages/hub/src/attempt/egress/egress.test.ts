import { once } from 'node:events';
import type { AddressInfo, Server } from 'node:net';
import { createServer } from 'node:net';
import { Worker } from 'node:worker_threads';
import type { Receiver } from '@streaming-hub/testkit';
import { makeReceiverCertificate, respond, startReceiver, until } from '@streaming-hub/testkit';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../base/index.ts';
import { hostileAnswers, hostileHosts } from './hostile-addresses.ts';
import type { Egress, EgressOptions, ExchangeRequest, ExchangeResult, Resolver } from './index.ts';
import { createEgress } from './index.ts';

const never = new AbortController().signal;
const open: { close(): Promise<void> }[] = [];

afterEach(async () => {
  await Promise.all(open.splice(0).map((each) => each.close()));
});

function egressWith(options: Partial<EgressOptions> = {}): Egress {
  const egress = createEgress({
    allow_private: true,
    allow_http: true,
    clock: systemClock,
    ...options,
  });
  open.push(egress);
  return egress;
}

async function receiverWith(options: Parameters<typeof startReceiver>[0] = {}): Promise<Receiver> {
  const receiver = await startReceiver(options);
  open.push(receiver);
  return receiver;
}

function send(
  egress: Egress,
  url: string,
  overrides: Partial<ExchangeRequest> = {},
): Promise<ExchangeResult> {
  const { origin, pathname, hostname } = new URL(url);
  return egress.exchange({
    target: { origin, path: pathname, hostname: hostname.replaceAll(/[[\]]/g, '') },
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: Buffer.from('{}'),
    timeout_ms: 5_000,
    answer_bytes_max: 64 * 1024,
    signal: never,
    ...overrides,
  });
}

function codeOf(result: ExchangeResult): string {
  return result.answered ? `status ${result.status}` : result.error.code;
}

/** A receiver in a thread of its own, which goes on when this one stands still. It answers after 100 ms. */
async function startReceiverElsewhere(): Promise<{ url: string }> {
  const worker = new Worker(
    `const { parentPort } = require('node:worker_threads');
     const server = require('node:http').createServer((request, response) => {
       request.resume().on('end', () => setTimeout(() => response.end('ok'), 100));
     });
     server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));`,
    { eval: true },
  );
  open.push({ close: async () => void (await worker.terminate()) });
  const [port] = (await once(worker, 'message')) as [number];
  return { url: `http://127.0.0.1:${port}` };
}

describe('addresses at the socket', () => {
  let listener: Server;
  let port = 0;
  let connections = 0;

  beforeAll(async () => {
    // Dual stack: whatever reaches this machine on this port is counted.
    listener = createServer((socket) => {
      connections += 1;
      socket.destroy();
    });
    await new Promise<void>((resolve) => listener.listen(0, '::', resolve));
    port = (listener.address() as AddressInfo).port;
  });
  afterAll(() => listener.close());

  const publicOnly = (resolver: Resolver) =>
    egressWith({ allow_private: false, allow_http: true, resolver });

  it('never connects to a hostile literal, even when the URL check was left out', async () => {
    const egress = publicOnly(() => Promise.reject(new Error('a literal needs no DNS')));
    for (const host of hostileHosts) {
      const url = URL.parse(`http://${host}:${port}/`);
      if (url === null) continue;
      expect(codeOf(await send(egress, url.href)), host).toBe('egress_refused');
    }
    expect(connections).toBe(0);
  });

  it('never connects to a name that resolves to a hostile address', async () => {
    for (const address of hostileAnswers) {
      const egress = publicOnly(async () => [address]);
      const result = await send(egress, `http://hooks.example.com:${port}/`);
      expect(codeOf(result), address).toBe('egress_refused');
    }
    expect(connections).toBe(0);
  });

  it.each([
    ['first', ['127.0.0.1', '93.184.216.34']],
    ['last', ['93.184.216.34', '2606:4700::1111', '::1']],
    ['beyond the addresses it would try', [...Array<string>(30).fill('93.184.216.34'), '10.0.0.1']],
  ])('refuses a name with one private address among public ones: %s', async (_where, answers) => {
    const egress = publicOnly(async () => answers);
    const result = await send(egress, `http://hooks.example.com:${port}/`);
    expect(codeOf(result)).toBe('egress_refused');
    expect(connections).toBe(0);
  });

  it('vets every connection anew: a name that turns private after a first answer is refused', async () => {
    const answers = [['93.184.216.34'], ['127.0.0.1']];
    let asked = 0;
    const egress = publicOnly(async () => answers[asked++] ?? []);
    const url = `http://rebind.example.com:${port}/`;
    const [first, second] = [await send(egress, url, { timeout_ms: 50 }), await send(egress, url)];
    expect(codeOf(first)).not.toBe('egress_refused');
    expect(codeOf(second)).toBe('egress_refused');
    expect(asked).toBe(2);
    expect(connections).toBe(0);
  });

  it.each(['169.254.169.254', '::ffff:169.254.169.254', '64:ff9b::a9fe:a9fe', '0.0.0.0', '::'])(
    'refuses %s behind a name even where private targets are allowed',
    async (address) => {
      const egress = egressWith({ resolver: async () => [address] });
      const result = await send(egress, `http://receiver.internal:${port}/`);
      expect(codeOf(result)).toBe('egress_refused');
      expect(connections).toBe(0);
    },
  );
});

describe('a vetted name', () => {
  it('is resolved once and called with its own Host', async () => {
    const receiver = await receiverWith();
    let asked = 0;
    const egress = egressWith({
      resolver: async () => {
        asked += 1;
        return ['127.0.0.1'];
      },
    });
    const result = await send(egress, `http://receiver.test:${receiver.port}/hook`);
    expect(result).toMatchObject({ answered: true, status: 200, peer_is_private: true });
    expect(asked).toBe(1);
    expect(receiver.requests[0]?.headers.host).toBe(`receiver.test:${receiver.port}`);
    expect(result.timings.dns_ms).not.toBeNull();
    expect(result.timings.connect_ms).not.toBeNull();
    expect(result.timings.tls_ms).toBeNull();
  });

  it('falls back to the next address when one refuses or is silent', async () => {
    const receiver = await receiverWith();
    // 127.0.0.2 refuses (nothing listens there); 192.0.2.0/24 would be silent but is reserved.
    const egress = egressWith({ resolver: async () => ['127.0.0.2', '::1', '127.0.0.1'] });
    const result = await send(egress, `http://receiver.test:${receiver.port}/`);
    expect(codeOf(result)).toBe('status 200');
  });

  it.each([
    ['ENOTFOUND', 'dns_failed', /does not exist/],
    ['ENODATA', 'dns_failed', /no address/],
    ['ETIMEOUT', 'dns_failed', /no answer/],
    ['ESERVFAIL', 'dns_failed', /ESERVFAIL/],
    ['ECONNREFUSED', 'hub_error', /DNS server of the hub/],
  ])('reports %s of DNS as %s', async (code, expected, message) => {
    const egress = egressWith({
      resolver: () => Promise.reject(Object.assign(new Error(code), { code })),
    });
    const result = await send(egress, 'http://receiver.test/');
    expect(codeOf(result)).toBe(expected);
    if (!result.answered) expect(result.error.message).toMatch(message);
  });

  it('is looked up once for many connections at the same moment', async () => {
    const receiver = await receiverWith();
    let asked = 0;
    const egress = egressWith({
      resolver: async () => {
        asked += 1;
        await new Promise(setImmediate);
        return ['127.0.0.1'];
      },
    });
    const url = `http://receiver.test:${receiver.port}/`;
    await Promise.all(Array.from({ length: 16 }, () => send(egress, url)));
    expect(receiver.connections.accepted).toBe(16);
    expect(asked).toBe(1);
  });

  it('is found in the hosts file where private targets are allowed', async () => {
    const receiver = await receiverWith();
    const result = await send(egressWith(), `http://localhost:${receiver.port}/`);
    expect(codeOf(result)).toBe('status 200');
    expect(result.timings.dns_ms).not.toBeNull();
  });

  it('is given up in time when DNS hangs', async () => {
    const egress = egressWith({ resolver: () => new Promise(() => {}) });
    const result = await send(egress, 'http://receiver.test/', { timeout_ms: 50 });
    expect(codeOf(result)).toBe('timeout');
  });
});

describe('connections', () => {
  it('serve one request after the other', async () => {
    const receiver = await receiverWith();
    const egress = egressWith();
    for (let count = 0; count < 300; count += 1) {
      expect(codeOf(await send(egress, receiver.url))).toBe('status 200');
    }
    expect(receiver.connections.accepted).toBe(1);
  });

  it('are as many as requests at the same time, and no more than the limit', async () => {
    const receiver = await receiverWith({ behaviour: respond.ok({ delay_ms: 20 }) });
    const egress = egressWith({ limits: { connections_per_origin_max: 4 } });
    const results = await Promise.all(Array.from({ length: 40 }, () => send(egress, receiver.url)));
    expect(results.every((result) => result.answered)).toBe(true);
    expect(receiver.connections.accepted).toBe(4);
  });

  it('say how long they took to make, and nothing when they were there already', async () => {
    const receiver = await receiverWith();
    const egress = egressWith();
    const first = await send(egress, receiver.url);
    const second = await send(egress, receiver.url);
    expect(first.timings).toMatchObject({ dns_ms: null, connect_ms: expect.any(Number) });
    expect(second.timings).toMatchObject({ dns_ms: null, connect_ms: null, tls_ms: null });
    expect(second.timings.first_byte_ms).toBeGreaterThan(0);
    expect(second.timings.total_ms).toBeGreaterThanOrEqual(second.timings.first_byte_ms ?? 0);
  });

  it('are closed when their origin was not used for a while', async () => {
    const receiver = await receiverWith();
    const egress = egressWith({ limits: { forget_after_ms: 20 } });
    await send(egress, receiver.url);
    expect(egress.stats().origins).toBe(1);
    await until(() => egress.stats().origins === 0);
    await until(() => receiver.connections.open === 0);
  });

  it('are kept for a bounded number of origins, the least recently used going first', async () => {
    const receivers = await Promise.all(Array.from({ length: 5 }, () => receiverWith()));
    const egress = egressWith({ limits: { origins_max: 3 } });
    for (const receiver of receivers) await send(egress, receiver.url);
    expect(egress.stats().origins).toBe(3);
    await until(() => receivers.filter((each) => each.connections.open === 1).length === 3);
    expect(receivers.map((each) => each.connections.open)).toEqual([0, 0, 1, 1, 1]);
  });

  it('in use are not closed to make room for another origin', async () => {
    const [slow, other] = [
      await receiverWith({ behaviour: respond.ok({ delay_ms: 100 }) }),
      await receiverWith(),
    ];
    const egress = egressWith({ limits: { origins_max: 1 } });
    const [first, second] = await Promise.all([send(egress, slow.url), send(egress, other.url)]);
    expect([codeOf(first), codeOf(second)]).toEqual(['status 200', 'status 200']);
  });

  it('are replaced when the receiver closed them while idle', async () => {
    const receiver = await receiverWith();
    const egress = egressWith();
    await send(egress, receiver.url);
    await receiver.down();
    await receiver.up();
    expect(codeOf(await send(egress, receiver.url))).toBe('status 200');
    expect(receiver.received).toBe(2);
  });

  it('are vetted again after a while, however busy they are', async () => {
    const receiver = await receiverWith();
    const answers = ['127.0.0.1', '169.254.169.254'];
    const egress = egressWith({
      resolver: async () => [answers.shift() ?? ''],
      limits: { connection_age_max_ms: 100 },
    });
    const url = `http://rebind.test:${receiver.port}/`;
    expect(codeOf(await send(egress, url))).toBe('status 200');
    await until(async () => codeOf(await send(egress, url)) === 'egress_refused');
    expect(receiver.connections.accepted).toBe(1);
  });

  it('in use finish before the egress is closed', async () => {
    const receiver = await receiverWith({ behaviour: respond.ok({ delay_ms: 100 }) });
    const egress = egressWith({ limits: { connections_per_origin_max: 1 } });
    const pending = [send(egress, receiver.url), send(egress, receiver.url)];
    await until(() => receiver.received === 1);
    await egress.close();
    expect(egress.stats()).toEqual({ origins: 0, in_flight: 0, idle: 0 });
    expect((await Promise.all(pending)).map(codeOf)).toEqual(['status 200', 'status 200']);
  });

  it('all end when the egress closes, and nothing is sent afterwards', async () => {
    const receiver = await receiverWith();
    const egress = egressWith();
    await send(egress, receiver.url);
    await egress.close();
    await until(() => receiver.connections.open === 0);
    expect(codeOf(await send(egress, receiver.url))).toBe('aborted');
    expect(receiver.received).toBe(1);
  });
});

describe('an exchange', () => {
  it('ends with the signal, before and during', async () => {
    const receiver = await receiverWith({ behaviour: respond.hang() });
    const egress = egressWith();
    const stop = new AbortController();
    const pending = Array.from({ length: 20 }, () =>
      send(egress, receiver.url, { signal: stop.signal }),
    );
    await until(() => receiver.received === 20);
    stop.abort();
    for (const result of await Promise.all(pending)) expect(codeOf(result)).toBe('aborted');
    expect(codeOf(await send(egress, receiver.url, { signal: stop.signal }))).toBe('aborted');
    expect(receiver.received).toBe(20);
    expect(egress.stats().in_flight).toBe(0);
  });

  it('that ended while it waited for a connection is never sent', async () => {
    const receiver = await receiverWith({ behaviour: respond.ok({ delay_ms: 100 }) });
    const egress = egressWith({ limits: { connections_per_origin_max: 1 } });
    const first = send(egress, receiver.url);
    const second = await send(egress, receiver.url, { timeout_ms: 30 });
    expect(codeOf(second)).toBe('timeout');
    expect(codeOf(await first)).toBe('status 200');
    expect(codeOf(await send(egress, receiver.url))).toBe('status 200');
    expect(receiver.received).toBe(2);
  });

  it('is not called late because this process stood still', async () => {
    const receiver = await startReceiverElsewhere();
    const egress = egressWith();
    await send(egress, receiver.url);
    const pending = send(egress, receiver.url, { timeout_ms: 300 });
    await new Promise((resolve) => setTimeout(resolve, 20)); // the request is on its way
    await new Promise(setImmediate); // after this phase of the event loop timers come first
    const stalledUntil_ms = performance.now() + 600;
    while (performance.now() < stalledUntil_ms); // the answer arrives meanwhile
    expect(codeOf(await pending)).toBe('status 200');
  });

  it('reports bad headers as a fault of the hub, not of the receiver', async () => {
    const receiver = await receiverWith();
    const egress = egressWith();
    const result = await send(egress, receiver.url, { headers: { 'x-bad': 'a\r\nb: c' } });
    expect(codeOf(result)).toBe('hub_error');
    expect(receiver.received).toBe(0);
    expect(codeOf(await send(egress, receiver.url))).toBe('status 200');
  });
});

describe('TLS', () => {
  it('needs a certificate from a known authority, for the right name and in date', async () => {
    const [right, expired, other] = await Promise.all([
      makeReceiverCertificate(['DNS:receiver.test']),
      makeReceiverCertificate(['DNS:receiver.test'], -1),
      makeReceiverCertificate(['DNS:other.test']),
    ]);
    const egress = egressWith({
      resolver: async () => ['127.0.0.1'],
      extra_authorities: [right.cert, expired.cert, other.cert],
    });
    const strict = egressWith({ resolver: async () => ['127.0.0.1'] });
    const urlOf = async (tls: typeof right) =>
      `https://receiver.test:${(await receiverWith({ tls })).port}/`;

    const accepted = await send(egress, await urlOf(right));
    expect(accepted).toMatchObject({ answered: true, status: 200 });
    expect(accepted.timings.tls_ms).toBeGreaterThan(0);
    const failures = [
      [await send(strict, await urlOf(right)), /self-signed or from an unknown authority/],
      [await send(egress, await urlOf(expired)), /expired/],
      [await send(egress, await urlOf(other)), /not made for receiver\.test/],
    ] as const;
    for (const [result, message] of failures) {
      expect(codeOf(result)).toBe('tls_failed');
      if (!result.answered) expect(result.error.message).toMatch(message);
    }
  });

  it('fails clearly when the other side speaks plain http', async () => {
    const receiver = await receiverWith();
    const result = await send(egressWith(), `https://127.0.0.1:${receiver.port}/`);
    expect(codeOf(result)).toBe('tls_failed');
    if (!result.answered) expect(result.error.message).toMatch(/does not speak TLS/);
  });
});
