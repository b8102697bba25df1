import { decodeRecord, defaultRules } from '@streaming-hub/contract';
import { uuidv7 } from 'uuidv7';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RecordTooLargeError } from '../stream/index.ts';
import { startTestServer, type TestServer } from './testing.ts';

let server: TestServer;
let strict: TestServer;
beforeAll(async () => {
  [server, strict] = await Promise.all([
    startTestServer(),
    startTestServer({ topicAutoCreate: false }),
  ]);
});
afterAll(async () => Promise.all([server.close(), strict.close()]));

const structured = { 'content-type': 'application/cloudevents+json' };
const event = (some: object = {}) => ({
  source: 'midaz',
  resourcetype: 'account',
  eventtype: 'created',
  datacontenttype: 'application/json',
  data: { n: 1 },
  ...some,
});
const post = (payload: unknown, headers: Record<string, string> = structured) => ({
  method: 'POST' as const,
  url: '/v1/events',
  headers,
  payload:
    typeof payload === 'string' || Buffer.isBuffer(payload) ? payload : JSON.stringify(payload),
});

describe('POST /v1/events', () => {
  it('fills in what follows, creates the topic, tells the ingest, and answers with positions', async () => {
    const answer = await server.call('acme', post(event()));
    expect(answer.status).toBe(202);
    expect(answer.body.data).toEqual([
      {
        id: expect.stringMatching(/-7/),
        topic: 'lerian.streaming.midaz',
        partition: 0,
        offset: '0',
      },
    ]);
    expect(server.created).toEqual(['refresh']);
    const record = server.memory.records[0];
    if (!record) throw new Error('nothing was published');
    const verdict = decodeRecord(record, defaultRules, Date.now());
    expect(verdict).toMatchObject({
      verdict: 'accept',
      event: { tenant_id: 'acme', event_type: 'account.created', id: answer.body.data[0].id },
    });
    expect(record.value?.toString()).toBe('{"n":1}');
  });

  it('takes the binary form with any body, byte for byte', async () => {
    const body = Buffer.from([0, 255, 1, 254]);
    const id = uuidv7();
    const headers = {
      'content-type': 'application/octet-stream',
      'ce-specversion': '1.0',
      'ce-id': id,
      'ce-source': 'midaz',
      'ce-type': 'studio.lerian.midaz.account.created',
    };
    const answer = await server.call('acme', post(body, headers));
    expect(answer).toMatchObject({ status: 202, body: { data: [{ id }] } });
    expect(server.memory.records.at(-1)?.value).toEqual(body);
  });

  it('takes a binary event without a body', async () => {
    const headers = {
      'ce-specversion': '1.0',
      'ce-source': 'midaz',
      'ce-type': 'studio.lerian.midaz.account.created',
    };
    const answer = await server.call('acme', { method: 'POST', url: '/v1/events', headers });
    expect(answer.status).toBe(202);
    expect(server.memory.records.at(-1)?.value).toBeNull();
  });

  it('takes a batch and keeps its order', async () => {
    const ids = [uuidv7(), uuidv7(), uuidv7()];
    const batch = ids.map((id) => event({ id }));
    const headers = { 'content-type': 'application/cloudevents-batch+json' };
    const answer = await server.call('acme', post(batch, headers));
    expect(answer.status).toBe(202);
    expect(answer.body.data.map((row: { id: string }) => row.id)).toEqual(ids);
  });

  it("refuses another tenant's event", async () => {
    const answer = await server.call('acme', post(event({ tenantid: 'rival' })));
    expect(answer).toMatchObject({ status: 403, body: { code: 'tenant_mismatch' } });
  });

  it.each([
    ['a missing attribute', post({ source: 'midaz', resourcetype: 'account' }), 422],
    ['a malformed document', post('{"source":'), 400],
    ['a body that is no event', post('{}', { 'content-type': 'application/json' }), 415],
    ['an unknown query', { ...post(event()), url: '/v1/events?wait=1' }, 422],
    ['a body beyond all bounds', post(Buffer.alloc(8 * 1024 * 1024 + 1, 32)), 413],
  ])('refuses %s', async (_name, options, status) => {
    const before = server.memory.records.length;
    const answer = await server.call('acme', options);
    expect(answer.status).toBe(status);
    expect(answer.headers['content-type']).toMatch(/^application\/problem\+json/);
    expect(answer.body).toMatchObject({
      status,
      instance: '/v1/events',
      trace_id: expect.stringMatching(/^[0-9a-f]{32}$/),
    });
    expect(server.memory.records).toHaveLength(before);
  });

  it('names the field at fault', async () => {
    const answer = await server.call('acme', post(event({ time: 'yesterday' })));
    expect(answer.body.errors[0]).toMatchObject({ field: 'time' });
  });

  it('refuses an unknown topic where topics are not created', async () => {
    const answer = await strict.call('acme', post(event()));
    expect(answer).toMatchObject({
      status: 422,
      body: { errors: [{ field: 'source', code: 'unknown_topic' }] },
    });
  });

  it('says 503 and when to try again while the stream is away', async () => {
    server.memory.fault = new Error('no broker');
    const answer = await server.call('acme', post(event()));
    server.memory.fault = null;
    expect(answer).toMatchObject({ status: 503, body: { code: 'stream_unavailable' } });
    expect(answer.headers['retry-after']).toBe('1');
  });

  it('says 413 for what the stream finds too large', async () => {
    server.memory.fault = new RecordTooLargeError('1 MiB at most');
    const answer = await server.call('acme', post(event()));
    server.memory.fault = null;
    expect(answer.status).toBe(413);
  });
});
