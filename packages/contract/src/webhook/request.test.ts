import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { catalogueEvents } from '../../fixtures/index.ts';
import type { Attributes } from '../rules.ts';
import { toCloudEventJson } from './json.ts';
import { decodeHeaderValue, encodeHeaderValue } from './percent.ts';
import { buildWebhookRequest, type WebhookInput } from './request.ts';
import { newWebhookSecret, signWebhook } from './signature.ts';

const [fixture] = catalogueEvents();
const attributes = fixture?.attributes as Attributes;
const body = fixture?.body as Buffer;
const secret = newWebhookSecret();

function build(changes: Partial<WebhookInput> = {}, event: Partial<WebhookInput['event']> = {}) {
  return buildWebhookRequest({
    event: { attributes, body, event_type: 'organization.created', ...event },
    format: 'binary',
    header_prefix: 'X-Lerian-',
    secrets: [secret],
    attempt: 2,
    delivery_attempt_id: '019bc1f1-8600-7000-8000-0000000000ff',
    replay_id: null,
    timestamp_seconds: 1_768_478_400,
    user_agent: 'streaming-hub/0.1.0',
    extra_headers: {},
    ...changes,
  });
}

describe('binary', () => {
  test('all headers, and the stored bytes', () => {
    const request = build();
    expect(request.body).toBe(body);
    expect(request.headers).toEqual({
      'user-agent': 'streaming-hub/0.1.0',
      'X-Lerian-Event-Id': attributes['id'],
      'X-Lerian-Delivery-Id': '019bc1f1-8600-7000-8000-0000000000ff',
      'X-Lerian-Event-Type': 'organization.created',
      'X-Lerian-Attempt': '2',
      'webhook-id': attributes['id'],
      'webhook-timestamp': '1768478400',
      'webhook-signature': signWebhook(secret, attributes['id'] as string, 1_768_478_400, body),
      'content-type': 'application/json',
      'ce-specversion': '1.0',
      'ce-id': attributes['id'],
      'ce-source': 'ledger',
      'ce-type': attributes['type'],
      'ce-time': attributes['time'],
      'ce-schemaversion': '1.0.0',
      'ce-resourcetype': 'organization',
      'ce-eventtype': 'created',
      'ce-tenantid': 'default',
      'ce-subject': attributes['subject'],
    });
  });

  test('replays are marked and trace context is carried on', () => {
    const traced = { ...attributes, traceparent: '00-a-b-01', tracestate: 'a=1' };
    const { headers } = build({ replay_id: 'r1' }, { attributes: traced });
    expect(headers).toMatchObject({
      'X-Lerian-Replay': 'r1',
      traceparent: '00-a-b-01',
      tracestate: 'a=1',
    });
    expect(headers).not.toHaveProperty('ce-traceparent');
  });

  test('values are percent-encoded as the HTTP binding says', () => {
    const { headers } = build({}, { attributes: { ...attributes, subject: 'Café "50%" 😀' } });
    expect(headers['ce-subject']).toBe('Caf%C3%A9%20%2250%25%22%20%F0%9F%98%80');
  });

  test('the content type: stored, else JSON, none without a body', () => {
    const { datacontenttype: _, ...bare } = attributes;
    const text = { ...attributes, datacontenttype: 'text/plain; charset=utf-8' };
    expect(build({}, { attributes: text }).headers['content-type']).toBe(
      'text/plain; charset=utf-8',
    );
    expect(build({}, { attributes: bare }).headers['content-type']).toBe('application/json');
    const empty = build({}, { attributes: bare, body: null });
    expect(empty.headers).not.toHaveProperty('content-type');
    expect(empty.body).toHaveLength(0);
  });

  test('own headers never replace ours, in any case', () => {
    const { headers } = build({
      extra_headers: { 'X-Env': 'prod', 'WebHook-Id': 'forged', 'x-lerian-event-id': 'forged' },
    });
    expect(headers['X-Env']).toBe('prod');
    expect(Object.values(headers)).not.toContain('forged');
  });

  test('another prefix', () => {
    expect(build({ header_prefix: 'X-Acme-' }).headers).toHaveProperty('X-Acme-Event-Id');
  });

  test('never unsigned', () => {
    expect(() => build({ secrets: [] })).toThrow(RangeError);
    expect(() => build({ secrets: ['plain'] })).toThrow(RangeError);
    expect(() => build({ secrets: ['whsec_'] })).toThrow(RangeError);
  });
});

describe('structured', () => {
  test('one JSON document with the body inside, byte for byte, and no ce- headers', () => {
    const precise = Buffer.from('{"amount": 12345678901234567890.10}');
    const request = build({ format: 'structured' }, { body: precise });
    expect(request.headers['content-type']).toMatch(/^application\/cloudevents\+json/);
    expect(Object.keys(request.headers).filter((name) => name.startsWith('ce-'))).toEqual([]);
    expect(request.body.toString()).toContain(`"data":${precise.toString()}}`);
    expect(JSON.parse(request.body.toString())).toMatchObject(attributes);
  });

  test('the signature covers that document', () => {
    const { headers, body: sent } = build({ format: 'structured' });
    const wanted = signWebhook(secret, attributes['id'] as string, 1_768_478_400, sent);
    expect(headers['webhook-signature']).toBe(wanted);
  });

  test.each([
    ['application/json', '{broken', 'data_base64'],
    ['application/json', '"text"', 'data'],
    ['application/vnd.acme+json; charset=utf-8', '{"a":1}', 'data'],
    ['text/xml', '<a/>', 'data_base64'],
    ['application/vnd.confluent.protobuf', '\u0000\u0001', 'data_base64'],
  ])('a body of %s %j goes into %s', (datacontenttype, text, member) => {
    const event = { attributes: { ...attributes, datacontenttype }, body: Buffer.from(text) };
    const sent = build({ format: 'structured' }, event).body.toString();
    expect(JSON.parse(sent)).toHaveProperty(member);
    expect(JSON.parse(sent)).toEqual(toCloudEventJson(event.attributes, event.body));
  });

  test('no body, no data', () => {
    const sent: unknown = JSON.parse(
      build({ format: 'structured' }, { body: null }).body.toString(),
    );
    expect(sent).toEqual(attributes);
  });
});

test('numbers a double cannot hold keep their digits in the JSON form', () => {
  const text = '{"big":12345678901234567890,"small":1.5,"exp":1e3,"s":"12345678901234567890"}';
  const { data } = toCloudEventJson(attributes, Buffer.from(text));
  expect(JSON.stringify(data)).toBe(text);
});

test('header values survive encoding', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (value) => {
      fc.pre(value.isWellFormed());
      const encoded = encodeHeaderValue(value);
      expect(encoded).toMatch(/^[!-~]*$/);
      expect(decodeHeaderValue(encoded)).toBe(value);
    }),
  );
});

test.each([
  ['"a \\"b\\" c"', 'a "b" c'],
  ['CafÃ©', 'Café'],
  ['100%', '100%'],
  ['%zz', '%zz'],
  ['%C3%28', null],
])('the header value %j decodes to %j', (raw, wanted) => {
  expect(decodeHeaderValue(raw)).toBe(wanted);
});

test('data nested too deep to be written again travels as bytes, instead of breaking every page it is on', () => {
  const deep = Buffer.from(`${'['.repeat(5_000)}${']'.repeat(5_000)}`);
  const event = toCloudEventJson({ id: 'x', datacontenttype: 'application/json' }, deep);
  expect(JSON.parse(JSON.stringify(event))).toMatchObject({ data_base64: deep.toString('base64') });
});
