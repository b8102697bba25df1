import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startTestServer, type TestServer } from '../http/testing.ts';
import { openSubscriptions, type SubscriptionsFixture } from './fixture.ts';
import { subscriptionRoutes } from './index.ts';

let at: SubscriptionsFixture;
let server: TestServer;

beforeAll(async () => {
  at = await openSubscriptions();
  await at.subscriptions.verifier.start();
  const routes = subscriptionRoutes({
    subscriptions: at.subscriptions,
    timeout_seconds_default: 15,
  });
  server = await startTestServer({ pool: at.database.pool, routes: [routes] });
});
afterAll(async () => {
  await at.subscriptions.verifier.stop();
  await server.close();
  await at.close();
});

const call = (
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE',
  url: string,
  payload?: object,
  tenant = 'tenant',
) => server.call(tenant, { method, url, ...(payload ? { payload } : {}) });

const minimal = {
  destination: { url: 'https://a.example/' },
  event_types: ['account.created', 'transaction.*'],
};

describe('subscription routes', () => {
  it('create: answers the whole shape, with the secret once', async () => {
    const made = await call('POST', '/v1/subscriptions', {
      ...minimal,
      name: 'accounts to billing',
    });
    expect(made.status).toBe(201);
    const { secret, ...shown } = made.body;
    expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
    expect(shown).toEqual({
      id: expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-7/),
      name: 'accounts to billing',
      kind: 'webhook',
      enabled: true,
      verification_state: 'pending',
      verification_reason: null,
      verified_at: null,
      destination: { url: 'https://a.example/', headers: {}, timeout_seconds: 15 },
      event_types: ['account.created', 'transaction.*'],
      schema_major: null,
      origin: null,
      format: 'binary',
      ordering: 'fifo',
      hold_seconds: 30,
      max_in_flight: 1,
      retry_schedule_seconds: null,
      verification_method: 'challenge',
      disabled_reason: null,
      created_at: expect.stringMatching(/Z$/),
      updated_at: expect.stringMatching(/Z$/),
    });
    expect(made.headers['cache-control']).toBe('no-store');
    await expect
      .poll(
        async () => (await call('GET', `/v1/subscriptions/${shown.id}`)).body.verification_state,
      )
      .toBe('active');
    const again = await call('GET', `/v1/subscriptions/${shown.id}`);
    expect(JSON.stringify(again.body)).not.toContain('whsec_');
    expect(again.body.verified_at).toMatch(/Z$/);
  });

  it.each([
    ['an unknown field', { ...minimal, colour: 'red' }],
    [
      'an unknown field of the destination',
      { ...minimal, destination: { url: 'https://a.example/', verb: 'PUT' } },
    ],
    ['no event types', { ...minimal, event_types: [] }],
    ['another kind', { ...minimal, kind: 'pigeon' }],
    [
      'a time-out beyond the limit',
      { ...minimal, destination: { url: 'https://a.example/', timeout_seconds: 31 } },
    ],
    ['several in flight in order', { ...minimal, max_in_flight: 4 }],
    ['an address that is refused', { ...minimal, destination: { url: 'https://x.refused/' } }],
    ['something that is no address', { ...minimal, destination: { url: 'nonsense' } }],
    ['an id chosen by the caller', { ...minimal, id: '018f0000-0000-7000-8000-000000000000' }],
    ["another tenant's name", { ...minimal, tenant_id: 'other' }],
  ])('create: refuses %s', async (_, body) => {
    expect((await call('POST', '/v1/subscriptions', body)).status).toBe(422);
  });

  it('list: pages through all and shows no secret', async () => {
    for (let n = 0; n < 5; n += 1) await call('POST', '/v1/subscriptions', minimal, 'paging');
    const first = await call('GET', '/v1/subscriptions?limit=3', undefined, 'paging');
    expect(first.body.data).toHaveLength(3);
    const second = await call(
      'GET',
      `/v1/subscriptions?limit=3&cursor=${first.body.next_cursor}`,
      undefined,
      'paging',
    );
    expect(second.body.data).toHaveLength(2);
    expect(second.body.next_cursor).toBeNull();
    expect(
      new Set([...first.body.data, ...second.body.data].map((one: { id: string }) => one.id)).size,
    ).toBe(5);
    expect(JSON.stringify(first.body)).not.toContain('whsec_');
    expect((await call('GET', '/v1/subscriptions?cursor=nonsense')).body.code).toBe(
      'invalid_cursor',
    );
  });

  it('every route: another tenant, and an id that is none, is a 404', async () => {
    const { id } = (await call('POST', '/v1/subscriptions', minimal)).body;
    for (const [tenant, target] of [
      ['stranger', id],
      ['tenant', 'nonsense'],
    ] as const) {
      const url = `/v1/subscriptions/${target}`;
      const answers = [
        await call('GET', url, undefined, tenant),
        await call('PATCH', url, { enabled: false }, tenant),
        await call('DELETE', url, undefined, tenant),
        await call('POST', `${url}/verify`, undefined, tenant),
        await call('POST', `${url}/secret/rotate`, {}, tenant),
        await call('POST', `${url}/test`, undefined, tenant),
      ];
      for (const answer of answers)
        expect([answer.status, answer.body.code]).toEqual([404, 'not_found']);
    }
  });

  it('change, verify, rotate, test, delete', async () => {
    const { id, secret } = (await call('POST', '/v1/subscriptions', minimal)).body;
    const url = `/v1/subscriptions/${id}`;
    const changed = await call('PATCH', url, {
      name: null,
      hold_seconds: null,
      retry_schedule_seconds: [0, 5],
    });
    expect(changed.body).toMatchObject({ hold_seconds: null, retry_schedule_seconds: [0, 5] });
    expect((await call('PATCH', url, {})).status).toBe(422);
    expect((await call('PATCH', url, { destination: {} })).status).toBe(422);
    expect((await call('PATCH', url, { destination: { verb: 'PUT' } })).status).toBe(422);
    const patient = await call('PATCH', url, { destination: { timeout_seconds: 20 } });
    expect(patient.body.destination).toEqual({
      url: 'https://a.example/',
      headers: {},
      timeout_seconds: 20,
    });
    expect((await call('POST', `${url}/verify`)).body.verification_state).toBe('active');
    const rotated = await call('POST', `${url}/secret/rotate`, { overlap_seconds: 60 });
    expect(rotated.status).toBe(200);
    expect(rotated.body.secret).toMatch(/^whsec_/);
    expect(rotated.body.secret).not.toBe(secret);
    expect((await call('POST', `${url}/secret/rotate`)).status).toBe(200);
    expect((await call('POST', `${url}/secret/rotate`, { overlap_seconds: 604_801 })).status).toBe(
      422,
    );
    const tried = await call('POST', `${url}/test`);
    expect(tried.body).toMatchObject({
      number: 1,
      outcome: 'delivered',
      status: 204,
      timings_ms: { total: 3 },
    });
    expect((await call('DELETE', url)).status).toBe(204);
    expect((await call('GET', url)).status).toBe(404);
  });
});
