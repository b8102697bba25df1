import { encodeDeliveryId } from '@streaming-hub/contract';
import { uuidv7 } from 'uuidv7';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type Seeded,
  seedAttempt,
  seedDeadLetter,
  seedDelivery,
  seedEvent,
  seedRetry,
  seedSubscription,
  startTestServer,
  type TestServer,
} from './testing.ts';

let server: TestServer;
let mine: Seeded;
beforeAll(async () => {
  server = await startTestServer();
  mine = await seedSubscription(server.pool, 'acme');
});
afterAll(() => server.close());

const get = (url: string) => ({ method: 'GET' as const, url });
const post = (url: string) => ({ method: 'POST' as const, url });
const idOf = (to: Seeded, { seq }: { seq: number }) =>
  encodeDeliveryId({ seq, lane_id: to.lane_id, subscription_number: to.subscription_number });

describe('events', () => {
  it('are read page by page in order of arrival, and on from the end', async () => {
    const stored: string[] = [];
    for (let n = 0; n < 5; n++) stored.push((await seedEvent(server.pool, 'reader')).id);
    await seedEvent(server.pool, 'somebody-else');
    const read: string[] = [];
    let cursor = '';
    for (let more = true; more; ) {
      const page = await server.call('reader', get(`/v1/events?limit=2${cursor}`));
      expect(page.status).toBe(200);
      read.push(...page.body.data.map((event: { id: string }) => event.id));
      cursor = `&cursor=${page.body.next_cursor}`;
      more = page.body.has_more;
    }
    expect(read).toEqual(stored);
    const later = await seedEvent(server.pool, 'reader');
    const page = await server.call('reader', get(`/v1/events?limit=2${cursor}`));
    expect(page.body.data.map((event: { id: string }) => event.id)).toEqual([later.id]);
    expect(page.body.data[0]).toMatchObject({
      sequence: String(later.seq),
      data: { n: 1 },
      tenantid: 'reader',
    });
  });

  it('end a page early rather than hold too many bytes, and lose nothing', async () => {
    const stored: string[] = [];
    for (let n = 0; n < 3; n++) {
      stored.push((await seedEvent(server.pool, 'heavy', Buffer.alloc(5 * 1024 * 1024, 0x20))).id);
    }
    const read: string[] = [];
    const sizes: number[] = [];
    let cursor = '';
    for (let more = true; more; ) {
      const page = await server.call('heavy', get(`/v1/events?limit=500${cursor}`));
      read.push(...page.body.data.map((event: { id: string }) => event.id));
      sizes.push(page.body.data.length);
      cursor = `&cursor=${page.body.next_cursor}`;
      more = page.body.has_more;
    }
    expect(read).toEqual(stored);
    expect(sizes).toEqual([1, 1, 1]);
  });

  it('can be read one by one', async () => {
    const event = await seedEvent(server.pool, 'acme', null);
    const answer = await server.call('acme', get(`/v1/events/${event.id}`));
    expect(answer).toMatchObject({
      status: 200,
      body: { id: event.id, sequence: String(event.seq) },
    });
    expect(answer.body).not.toHaveProperty('data');
    expect(answer.body).not.toHaveProperty('data_base64');
  });
});

describe('the state of a delivery', () => {
  const stateOf = async (delivery: { seq: number }) =>
    (await server.call('acme', get(`/v1/deliveries/${idOf(mine, delivery)}`))).body;

  it('is pending before anything was tried', async () => {
    const delivery = await seedDelivery(server.pool, mine);
    expect(await stateOf(delivery)).toEqual({
      id: idOf(mine, delivery),
      event_id: delivery.event_id,
      subscription_id: mine.subscription_id,
      state: 'pending',
      reason: null,
      attempts: 0,
      next_attempt_at: null,
      created_at: new Date(Math.floor(delivery.seq / 1_000)).toISOString(),
      finished_at: null,
    });
  });

  it('is pending with a next attempt after a failure', async () => {
    const delivery = await seedDelivery(server.pool, mine);
    await seedAttempt(server.pool, mine, delivery.seq, {
      number: 1,
      outcome: 'failed',
      final: false,
      error: 'timeout',
    });
    await seedRetry(server.pool, mine, delivery, 'scheduled');
    expect(await stateOf(delivery)).toMatchObject({
      state: 'pending',
      attempts: 1,
      reason: 'http_status',
      next_attempt_at: expect.stringMatching(/Z$/),
    });
  });

  it('is delivered after a success', async () => {
    const delivery = await seedDelivery(server.pool, mine);
    await seedAttempt(server.pool, mine, delivery.seq, {
      number: 1,
      outcome: 'failed',
      final: false,
    });
    await seedAttempt(server.pool, mine, delivery.seq, {
      number: 2,
      outcome: 'delivered',
      final: true,
    });
    expect(await stateOf(delivery)).toMatchObject({
      state: 'delivered',
      attempts: 2,
      reason: null,
      finished_at: expect.stringMatching(/Z$/),
    });
  });

  it('is parked, cancelled or a dead letter', async () => {
    const parked = await seedDelivery(server.pool, mine);
    await seedRetry(server.pool, mine, parked, 'parked');
    expect(await stateOf(parked)).toMatchObject({ state: 'parked', next_attempt_at: null });

    const cancelled = await seedDelivery(server.pool, mine);
    await seedAttempt(server.pool, mine, cancelled.seq, {
      number: 1,
      outcome: 'cancelled',
      final: true,
      error: 'deleted',
    });
    expect(await stateOf(cancelled)).toMatchObject({
      state: 'cancelled',
      reason: 'deleted',
      attempts: 0,
    });

    const dead = await seedDeadLetter(server.pool, mine);
    expect(await stateOf(dead)).toMatchObject({
      state: 'dead_letter',
      reason: 'exhausted',
      attempts: 2,
    });
  });

  it('shows what was tried', async () => {
    const delivery = await seedDelivery(server.pool, mine);
    await seedAttempt(server.pool, mine, delivery.seq, {
      number: 1,
      outcome: 'failed',
      final: false,
      error: 'http_status',
    });
    await seedAttempt(server.pool, mine, delivery.seq, {
      number: 2,
      outcome: 'delivered',
      final: true,
    });
    const answer = await server.call(
      'acme',
      get(`/v1/deliveries/${idOf(mine, delivery)}/attempts`),
    );
    expect(answer.status).toBe(200);
    expect(answer.body.data).toMatchObject([
      {
        number: 1,
        outcome: 'failed',
        status: 500,
        error: { code: 'http_status', message: 'http_status' },
      },
      {
        number: 2,
        outcome: 'delivered',
        status: 200,
        error: null,
        duration_ms: 12.5,
        timings_ms: { dns: null, first_byte: 9, total: 12.5 },
      },
    ]);
  });

  it('is listed by event', async () => {
    const delivery = await seedDelivery(server.pool, mine);
    const answer = await server.call('acme', get(`/v1/events/${delivery.event_id}/deliveries`));
    expect(answer.body.data).toMatchObject([{ id: idOf(mine, delivery), state: 'pending' }]);
  });
});

describe('deliveries of a subscription', () => {
  it('are listed newest first, by state, over every lane it had', async () => {
    const to = await seedSubscription(server.pool, 'lister');
    const url = `/v1/subscriptions/${to.subscription_id}/deliveries`;
    const made: string[] = [];
    for (let n = 0; n < 3; n++) made.unshift(idOf(to, await seedDelivery(server.pool, to)));
    const dead = idOf(to, await seedDeadLetter(server.pool, to));
    const elsewhere = await seedSubscription(server.pool, 'lister');
    await server.pool.query('update subscriptions set lane_id = $1 where number = $2', [
      elsewhere.lane_id,
      to.subscription_number,
    ]);
    const moved = { ...to, lane_id: elsewhere.lane_id };
    const newest = idOf(moved, await seedDelivery(server.pool, moved));
    await seedDelivery(server.pool, elsewhere);

    const read: string[] = [];
    let cursor = '';
    do {
      const page = await server.call('lister', get(`${url}?limit=2${cursor}`));
      expect(page.status).toBe(200);
      read.push(...page.body.data.map((row: { id: string }) => row.id));
      cursor = page.body.next_cursor === null ? '' : `&cursor=${page.body.next_cursor}`;
    } while (cursor !== '');
    expect(read).toEqual([newest, dead, ...made]);

    const ids = async (state: string) =>
      (await server.call('lister', get(`${url}?state=${state}&limit=500`))).body.data.map(
        (row: { id: string }) => row.id,
      );
    expect(await ids('dead_letter')).toEqual([dead]);
    expect(await ids('pending')).toEqual([newest, ...made]);
    expect(await ids('parked')).toEqual([]);
    expect(await ids('delivered')).toEqual([]);
  });

  it('finds a rare state behind many rows', async () => {
    const to = await seedSubscription(server.pool, 'rare');
    const delivered = await seedDelivery(server.pool, to);
    await seedAttempt(server.pool, to, delivered.seq, {
      number: 1,
      outcome: 'delivered',
      final: true,
    });
    await server.pool.query(
      `insert into deliveries select $1::int, $2::bigint + n, $3::int, 'rare', $4::uuid from generate_series(1, 6000) n`,
      [to.lane_id, delivered.seq, to.subscription_number, delivered.event_id],
    );
    const url = `/v1/subscriptions/${to.subscription_id}/deliveries?state=delivered`;
    const first = await server.call('rare', get(url));
    expect(first.body.data).toEqual([]);
    const second = await server.call('rare', get(`${url}&cursor=${first.body.next_cursor}`));
    expect(second.body).toMatchObject({ data: [{ id: idOf(to, delivered) }], next_cursor: null });
  });
});

describe('dead letters', () => {
  it('are listed, most recent first, page by page', async () => {
    const to = await seedSubscription(server.pool, 'undertaker');
    const other = await seedSubscription(server.pool, 'undertaker');
    const made = [idOf(to, await seedDeadLetter(server.pool, to))];
    made.unshift(idOf(other, await seedDeadLetter(server.pool, other)));
    made.unshift(idOf(to, await seedDeadLetter(server.pool, to)));
    const read: string[] = [];
    let cursor = '';
    do {
      const page = await server.call('undertaker', get(`/v1/dead-letters?limit=1${cursor}`));
      read.push(...page.body.data.map((row: { id: string }) => row.id));
      expect(page.body.data[0]).toMatchObject({
        state: 'dead_letter',
        last_status: 500,
        last_error: 'answered 500',
      });
      cursor = page.body.next_cursor === null ? '' : `&cursor=${page.body.next_cursor}`;
    } while (cursor !== '');
    expect(read).toEqual(made);
    const filtered = await server.call(
      'undertaker',
      get(`/v1/dead-letters?subscription_id=${other.subscription_id}`),
    );
    expect(filtered.body.data.map((row: { id: string }) => row.id)).toEqual([made[1]]);
  });

  it('are redriven once: due now, with a new schedule and a replay mark', async () => {
    const dead = await seedDeadLetter(server.pool, mine, 3);
    const listener = await server.pool.connect();
    const heard = new Promise((resolve) => listener.on('notification', resolve));
    await listener.query('listen hub_retries');
    const url = `/v1/dead-letters/${idOf(mine, dead)}/redrive`;
    const answers = await Promise.all([
      server.call('acme', post(url)),
      server.call('acme', post(url)),
    ]);
    expect(answers.map((answer) => answer.status).toSorted((a, b) => a - b)).toEqual([202, 409]);
    await heard;
    listener.release(true);
    const redriven = answers.find((answer) => answer.status === 202);
    expect(redriven?.body).toMatchObject({
      state: 'pending',
      reason: 'redrive',
      replay_id: expect.any(String),
    });
    const retry = await server.pool.query(
      `select r.state, r.attempts, r.attempts_before, r.replay_id, r.shard = l.shard as placed, r.due_at <= now() as due
       from retries r join lanes l on l.id = r.lane_id where r.lane_id = $1 and r.seq = $2`,
      [mine.lane_id, dead.seq],
    );
    expect(retry.rows).toEqual([
      {
        state: 'scheduled',
        attempts: 0,
        attempts_before: 3,
        replay_id: redriven?.body.replay_id,
        placed: true,
        due: true,
      },
    ]);
    const list = await server.call('acme', get(`/v1/dead-letters?limit=500`));
    expect(list.body.data.map((row: { id: string }) => row.id)).not.toContain(idOf(mine, dead));
  });

  it('cannot be redriven when alive, when the subscription is gone, or when the event is', async () => {
    const alive = await seedDelivery(server.pool, mine);
    expect(
      await server.call('acme', post(`/v1/deliveries/${idOf(mine, alive)}/redrive`)),
    ).toMatchObject({
      status: 409,
      body: { code: 'conflict', detail: expect.stringContaining('pending') },
    });
    const to = await seedSubscription(server.pool, 'acme');
    const dead = await seedDeadLetter(server.pool, to);
    await server.pool.query('update subscriptions set deleted_at = now() where number = $1', [
      to.subscription_number,
    ]);
    expect(
      (await server.call('acme', post(`/v1/deliveries/${idOf(to, dead)}/redrive`))).status,
    ).toBe(409);
    const forgotten = await seedDeadLetter(server.pool, mine);
    await server.pool.query('delete from event_inbox where ce_id = $1', [forgotten.event_id]);
    expect(
      (await server.call('acme', post(`/v1/deliveries/${idOf(mine, forgotten)}/redrive`))).status,
    ).toBe(409);
    const untouched = await server.pool.query(
      'select redriven_at from dead_letters where lane_id = $1 and seq = $2',
      [mine.lane_id, forgotten.seq],
    );
    expect(untouched.rows[0]?.redriven_at).toBeNull();
  });
});

describe('quarantine', () => {
  it('is listed, newest first, page by page', async () => {
    const ids = [uuidv7(), uuidv7(), uuidv7()];
    for (const [offset, id] of ids.entries()) {
      await server.pool.query(
        `insert into quarantine (id, topic, partition, record_offset, reason, detail, headers, value)
         values ($1, 'lerian.streaming.midaz', 0, $2, 'missing_header', 'no ce-id', '[{"key":"ce-type","value":"x"}]', 'raw')`,
        [id, offset],
      );
    }
    const first = await server.call('acme', get('/admin/quarantine?limit=2'));
    expect(first.status).toBe(200);
    expect(first.body.data).toMatchObject([
      {
        id: ids[2],
        offset: '2',
        reason: 'missing_header',
        value_base64: 'cmF3',
        headers: [{ key: 'ce-type', value: 'x' }],
      },
      { id: ids[1] },
    ]);
    const second = await server.call(
      'acme',
      get(`/admin/quarantine?limit=2&cursor=${first.body.next_cursor}`),
    );
    expect(second.body).toMatchObject({ data: [{ id: ids[0] }], next_cursor: null });
  });
});

describe('walls and refusals', () => {
  it("another tenant's ids are not found, on every route", async () => {
    const dead = await seedDeadLetter(server.pool, mine);
    const delivery_id = idOf(mine, dead);
    const requests = [
      get(`/v1/events/${dead.event_id}`),
      get(`/v1/events/${dead.event_id}/deliveries`),
      get(`/v1/subscriptions/${mine.subscription_id}/deliveries`),
      get(`/v1/deliveries/${delivery_id}`),
      get(`/v1/deliveries/${delivery_id}/attempts`),
      get(`/v1/dead-letters?subscription_id=${mine.subscription_id}`),
      post(`/v1/deliveries/${delivery_id}/redrive`),
      post(`/v1/dead-letters/${delivery_id}/redrive`),
    ];
    for (const request of requests) {
      expect((await server.call('rival', request)).status, request.url).toBe(404);
    }
    for (const url of ['/v1/events', '/v1/dead-letters']) {
      expect((await server.call('rival', get(url))).body.data, url).toEqual([]);
    }
    for (const request of requests.slice(0, 6)) {
      expect((await server.call('acme', request)).status, request.url).toBe(200);
    }
  });

  it('ids that cannot be ours are not found', async () => {
    for (const id of ['nonsense', uuidv7(), '00000000-0000-0000-0000-000000000000']) {
      for (const path of [
        'events/ID',
        'events/ID/deliveries',
        'subscriptions/ID/deliveries',
        'deliveries/ID',
        'deliveries/ID/attempts',
      ]) {
        expect((await server.call('acme', get(`/v1/${path.replace('ID', id)}`))).status, path).toBe(
          404,
        );
      }
    }
  });

  const id = uuidv7();
  it.each([
    ['/v1/events?limit=0', 422, 'limit'],
    ['/v1/events?limit=501', 422, 'limit'],
    ['/v1/events?limit=ten', 422, 'limit'],
    ['/v1/events?sort=asc', 422, 'sort'],
    ['/v1/events?cursor=AAAA', 400, null],
    [`/v1/events/${id}?fields=id`, 422, 'fields'],
    [`/v1/events/${id}/deliveries?state=dead`, 422, 'state'],
    [`/v1/subscriptions/${id}/deliveries?state=dead`, 422, 'state'],
    [`/v1/subscriptions/${id}/deliveries?cursor=ZXZlbnRzOjE`, 400, null],
    [`/v1/deliveries/${id}?x=1`, 422, 'x'],
    [`/v1/deliveries/${id}/attempts?limit=1`, 422, 'limit'],
    ['/v1/dead-letters?subscription_id=me', 422, 'subscription_id'],
    ['/v1/dead-letters?cursor=%20', 400, null],
    ['/admin/quarantine?limit=101', 422, 'limit'],
    ['/admin/quarantine?cursor=x', 422, 'cursor'],
  ])('%s', async (url, status, field) => {
    const answer = await server.call('acme', get(url));
    expect(answer.status).toBe(status);
    if (field !== null)
      expect(answer.body.errors[0]).toMatchObject({ field, message: expect.any(String) });
  });

  it('a redrive takes no body', async () => {
    const dead = await seedDeadLetter(server.pool, mine);
    const answer = await server.call('acme', {
      method: 'POST',
      url: `/v1/deliveries/${idOf(mine, dead)}/redrive`,
      headers: { 'content-type': 'application/json' },
      payload: { rate_per_second: 5 },
    });
    expect(answer.status).toBe(422);
  });
});
