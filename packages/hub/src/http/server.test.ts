import { connect } from 'node:net';
import { until } from '@streaming-hub/testkit';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createApiKey, revokeApiKey } from '../auth/index.ts';
import { openPool } from '../store/index.ts';
import { createHttpService } from './service.ts';
import { startTestServer, type TestServer } from './testing.ts';

const get = (url: string, headers: Record<string, string> = {}) => ({
  method: 'GET' as const,
  url,
  headers,
});

describe('problems', () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({
      routes: [
        async (app) => {
          app.post('/test/json', async (request) => request.body);
          app.get('/test/crash', async () => {
            throw new Error('the secret reason');
          });
        },
      ],
    });
  });
  afterAll(() => server.close());

  it('answers an unknown path', async () => {
    const answer = await server.call('acme', get('/v1/nothing?x=1'));
    expect(answer).toMatchObject({
      status: 404,
      body: { code: 'not_found', instance: '/v1/nothing' },
    });
    expect(answer.headers['content-type']).toMatch(/problem\+json/);
  });

  it('answers a wrong method and names the right ones', async () => {
    const answer = await server.call('acme', { method: 'DELETE', url: '/v1/events' });
    expect(answer).toMatchObject({ status: 405, body: { code: 'method_not_allowed' } });
    expect(answer.headers['allow']).toBe('GET, HEAD, POST');
  });

  it.each([
    ['malformed JSON', 'application/json', '{"a":', 400, 'malformed_json'],
    ['an empty JSON body', 'application/json', '', 400, 'malformed_json'],
    ['a media type it cannot read', 'text/csv', 'a,b', 415, 'unsupported_media_type'],
    ['too large a body', 'application/json', `"${'x'.repeat(300_000)}"`, 413, 'payload_too_large'],
    ['a poisoned document', 'application/json', '{"__proto__":{"a":1}}', 400, 'malformed_json'],
  ])('answers %s', async (_name, type, payload, status, code) => {
    const answer = await server.call('acme', {
      method: 'POST',
      url: '/test/json',
      headers: { 'content-type': type },
      payload,
    });
    expect(answer).toMatchObject({ status, body: { status, code } });
  });

  it('answers a path that is no path', async () => {
    const answer = await server.call('acme', get('/v1/events/%zz'));
    expect(answer).toMatchObject({ status: 400, body: { code: 'malformed_request' } });
    expect(answer.headers['content-type']).toMatch(/problem\+json/);
  });

  it('tells a caller nothing about a bug but its trace id', async () => {
    const answer = await server.call('acme', get('/test/crash'));
    expect(answer).toMatchObject({ status: 500, body: { code: 'internal' } });
    expect(JSON.stringify(answer.body)).not.toContain('secret reason');
  });

  it("keeps the caller's trace id", async () => {
    const trace_id = '4bf92f3577b34da6a3ce929d0e0e4736';
    const answer = await server.call(
      'acme',
      get('/v1/nothing', { traceparent: `00-${trace_id}-00f067aa0ba902b7-01` }),
    );
    expect(answer.body.trace_id).toBe(trace_id);
    expect(answer.headers['x-trace-id']).toBe(trace_id);
  });

  it('refuses a compressed body', async () => {
    const answer = await server.call('acme', {
      method: 'POST',
      url: '/v1/events',
      headers: { 'content-type': 'application/cloudevents+json', 'content-encoding': 'gzip' },
      payload: Buffer.from([31, 139, 8]),
    });
    expect(answer.status).toBe(415);
  });

  it('answers to this machine only while nobody has to authenticate', async () => {
    for (const host of ['localhost:8090', '127.0.0.1:1', '[::1]:8090', 'LOCALHOST']) {
      expect((await server.call('acme', get('/v1/events', { host }))).status, host).toBe(200);
    }
    for (const host of ['evil.example', 'localhost.evil.example', '10.0.0.1:8090']) {
      expect((await server.call('acme', get('/v1/events', { host }))).status, host).toBe(403);
    }
  });

  it('refuses a malformed tenant header', async () => {
    const answer = await server.call('no/such tenant', get('/v1/events'));
    expect(answer).toMatchObject({ status: 422, body: { errors: [{ field: 'x-tenant-id' }] } });
  });
});

describe('a database that is away', () => {
  it('is a 503 with Retry-After', async () => {
    const pool = openPool(
      { host: '127.0.0.1', port: 1 },
      { application_name: 'nobody listens there' },
    );
    const server = await startTestServer({ pool });
    const answer = await server.call('acme', get('/v1/events'));
    expect(answer).toMatchObject({
      status: 503,
      body: { code: 'database_unavailable', retryable: true },
    });
    expect(answer.headers['retry-after']).toBe('1');
    await pool.end();
    await server.close();
  });
});

describe('probes and metrics', () => {
  let healthy = true;
  let server: TestServer;
  beforeAll(async () => {
    const check = async () => {
      if (!healthy) throw new Error('refused');
    };
    server = await startTestServer({ auth: 'api-key', checks: [{ name: 'database', check }] });
  });
  afterAll(() => server.close());

  it('needs no credential', async () => {
    expect(await server.call('acme', get('/healthz'))).toMatchObject({
      status: 200,
      body: { status: 'ok' },
    });
    expect(await server.call('acme', get('/readyz'))).toMatchObject({
      status: 200,
      body: { status: 'ready' },
    });
    const metrics = await server.app.inject(get('/metrics'));
    expect(metrics.statusCode).toBe(200);
    expect(metrics.body).toContain('streaming_hub_records_total');
    expect(metrics.body).toContain('streaming_hub_breakers{state="open"} 0');
  });

  it('counts requests by route, never by path', async () => {
    await server.call('acme', get('/healthz'));
    const { body } = await server.app.inject(get('/metrics'));
    expect(body).toMatch(
      /streaming_hub_http_requests_total\{route="\/healthz",method="GET",status="200"\} \d+/,
    );
    expect(body).not.toContain('acme');
  });

  it('names the check that fails, and stays alive', async () => {
    healthy = false;
    const answer = await server.call('acme', get('/readyz'));
    expect(answer).toMatchObject({
      status: 503,
      body: { status: 'unavailable', checks: [{ name: 'database', ok: false }] },
    });
    expect((await server.call('acme', get('/healthz'))).status).toBe(200);
    healthy = true;
  });

  it('says 503 while draining', async () => {
    server.readiness.drain();
    expect(await server.call('acme', get('/readyz'))).toMatchObject({
      status: 503,
      body: { status: 'draining' },
    });
  });
});

describe('API keys', () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ auth: 'api-key' });
  });
  afterAll(() => server.close());
  const bearer = (key: string) => ({ authorization: `Bearer ${key}` });
  const call = async (
    url: string,
    headers: Record<string, string>,
    method: 'GET' | 'POST' = 'GET',
  ) => {
    const answer = await server.app.inject({ method, url, headers });
    return { status: answer.statusCode, body: answer.json(), headers: answer.headers };
  };

  it('refuses no key, a wrong key and another scheme', async () => {
    for (const headers of [
      {},
      bearer(`shk_${'A'.repeat(43)}`),
      bearer('nonsense'),
      { authorization: 'Basic YTpi' },
    ]) {
      const answer = await call('/v1/events', headers);
      expect(answer).toMatchObject({ status: 401, body: { code: 'unauthorized' } });
      expect(answer.headers['www-authenticate']).toBe('Bearer');
    }
  });

  it('acts for the tenant of the key and no other', async () => {
    const { key } = await createApiKey(server.pool, { tenant_id: 'acme', permission: 'read' });
    expect((await call('/v1/events', bearer(key))).status).toBe(200);
    expect((await call('/v1/events', { ...bearer(key), 'x-tenant-id': 'acme' })).status).toBe(200);
    expect((await call('/v1/events', { ...bearer(key), 'x-tenant-id': 'rival' })).status).toBe(403);
  });

  it('grants what the permission says', async () => {
    const keys = new Map<string, string>();
    for (const permission of ['read', 'write', 'admin', 'operator'] as const) {
      keys.set(
        permission,
        (await createApiKey(server.pool, { tenant_id: 'acme', permission })).key,
      );
    }
    const status = async (permission: string, url: string, method: 'GET' | 'POST' = 'GET') =>
      (await call(url, bearer(keys.get(permission) ?? ''), method)).status;
    const redriving = '/v1/deliveries/00000000-0000-7000-8000-000000000000/redrive';
    expect(await status('read', redriving, 'POST')).toBe(403);
    expect(await status('write', redriving, 'POST')).toBe(404);
    expect(await status('read', '/v1/dead-letters')).toBe(200);
    expect(await status('admin', '/admin/quarantine')).toBe(403);
    expect(await status('operator', '/admin/quarantine')).toBe(200);
  });

  it('stores only the hash, remembers the last use and forgets a revoked key within a second', async () => {
    const made = await createApiKey(server.pool, { tenant_id: 'acme', permission: 'read' });
    const stored = await server.pool.query('select * from api_keys where id = $1', [made.id]);
    expect(JSON.stringify(stored.rows[0])).not.toContain(made.key.slice(4));
    expect((await call('/v1/events', bearer(made.key))).status).toBe(200);
    await until(async () => {
      const used = await server.pool.query('select last_used_at from api_keys where id = $1', [
        made.id,
      ]);
      return used.rows[0]?.last_used_at;
    });
    expect(await revokeApiKey(server.pool, made.id)).toBe(true);
    expect(await revokeApiKey(server.pool, made.id)).toBe(false);
    const revoked_ms = performance.now();
    await until(async () => (await call('/v1/events', bearer(made.key))).status === 401);
    expect(performance.now() - revoked_ms).toBeLessThan(1_000);
  });
});

describe('the HTTP service', () => {
  it('listens on a free port, turns unready first, and stops; bytes that are no HTTP get a 400', async () => {
    const server = await startTestServer();
    const service = createHttpService({
      app: server.app,
      address: { host: '127.0.0.1', port: 0 },
      readiness: server.readiness,
      drain_ms: 150,
    });
    await Promise.all([service.start(), service.start()]);
    const url = service.url();
    if (url === null) throw new Error('it does not listen');
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    expect(await rawAnswer(new URL(url), 'NONSENSE\r\n\r\n')).toMatch(
      /^HTTP\/1.1 400 .*problem\+json/s,
    );
    const stopped = service.stop();
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    await Promise.all([stopped, service.stop()]);
    await expect(fetch(`${url}/healthz`)).rejects.toThrow();
    await server.database.drop();
  });

  it('may be stopped before it was started', async () => {
    const server = await startTestServer();
    const service = createHttpService({
      app: server.app,
      address: { host: '127.0.0.1', port: 0 },
      readiness: server.readiness,
      drain_ms: 10_000,
    });
    await service.stop();
    await expect(service.start()).rejects.toThrow(/stopped/);
    await server.database.drop();
  });
});

function rawAnswer(url: URL, request: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(url.port), url.hostname, () => socket.write(request));
    let text = '';
    socket.on('data', (chunk) => (text += chunk.toString()));
    socket.on('end', () => resolve(text));
    socket.on('error', reject);
  });
}
