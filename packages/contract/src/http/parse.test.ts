import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { HubError } from '../errors.ts';
import { limits } from '../limits.ts';
import { decodeRecord } from '../record/decode.ts';
import { encodeRecord } from '../record/encode.ts';
import { type ContractRules, defaultRules } from '../rules.ts';
import { type HttpInput, parseHttpEvents } from './parse.ts';
import { sliceElements, sliceMember } from './slices.ts';

const now_ms = Date.UTC(2026, 0, 15, 12);
const newId = () => '019bc1f1-8600-7000-8000-0000000000aa';
const context = { tenant_id: 'acme', now_ms, newId, rules: defaultRules };
const structured = 'application/cloudevents+json';
const batch = 'application/cloudevents-batch+json';

function send(content_type: string | undefined, body: unknown, headers: HttpInput['headers'] = {}) {
  const raw = typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body);
  const input = { headers: { 'content-type': content_type, ...headers }, body: Buffer.from(raw) };
  return parseHttpEvents(input, context);
}

function refusal(act: () => unknown): HubError {
  try {
    act();
  } catch (error) {
    if (error instanceof HubError) return error;
    throw error;
  }
  throw new Error('it was accepted');
}

const type = 'studio.lerian.ledger.account.created';
const complete = {
  specversion: '1.0',
  id: newId(),
  source: 'ledger',
  type,
  time: '2026-01-15T12:00:00.000Z',
  schemaversion: '1.0.0',
  resourcetype: 'account',
  eventtype: 'created',
  tenantid: 'acme',
};

describe('filling in', () => {
  test('everything from the type', () => {
    expect(send(structured, { type })).toEqual([{ attributes: complete, body: null }]);
  });

  test('the type from its parts', () => {
    const parts = { source: 'ledger', resourcetype: 'account', eventtype: 'created' };
    expect(send(structured, parts)).toEqual([{ attributes: complete, body: null }]);
  });

  test('binary', () => {
    const headers = { 'ce-type': type, 'ce-subject': 'Caf%C3%A9', 'ce-region': ['a', 'b'] };
    const body = Buffer.from([0, 1, 2, 255]);
    expect(send('application/x-protobuf', body, headers)).toEqual([
      {
        attributes: {
          ...complete,
          subject: 'Café',
          region: 'b',
          datacontenttype: 'application/x-protobuf',
        },
        body,
      },
    ]);
  });

  test('given values stay', () => {
    const given = {
      ...complete,
      id: '019bc1f1-8600-7000-8000-0000000000bb',
      schemaversion: '2.1.0',
      time: '2025-01-01T00:00:00+01:00',
    };
    expect(send(structured, given)[0]?.attributes).toEqual(given);
  });

  test('trace context of the request, unless the event has its own', () => {
    const parent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const own = '00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const headers = { traceparent: parent, tracestate: 'a=1' };
    expect(send(structured, { type }, headers)[0]?.attributes).toMatchObject(headers);
    const [kept] = send(structured, { type, traceparent: own }, headers);
    expect(kept?.attributes['traceparent']).toBe(own);
    expect(kept?.attributes).not.toHaveProperty('tracestate');
  });

  test('v1: the source is needed, the type leaves it out', () => {
    const rules: ContractRules = { ...defaultRules, grammar: 'v1' };
    const input = (event: object) => ({
      headers: { 'content-type': structured },
      body: Buffer.from(JSON.stringify(event)),
    });
    const event = { type: 'studio.lerian.account.created', source: '//midaz/ledger' };
    const [parsed] = parseHttpEvents(input(event), { ...context, rules });
    expect(parsed?.attributes).toMatchObject({
      ...event,
      resourcetype: 'account',
      eventtype: 'created',
    });
    const error = refusal(() =>
      parseHttpEvents(input({ type: event.type }), { ...context, rules }),
    );
    expect(error.errors?.[0]?.field).toBe('source');
  });
});

describe('bodies', () => {
  test('inline JSON keeps its bytes', () => {
    const text = `{"type":"${type}", "data" : {"amount": 10.50, "big":12345678901234567890, "s":"}\\"{"} }`;
    const [event] = send(structured, text);
    expect(event?.body?.toString()).toBe(
      '{"amount": 10.50, "big":12345678901234567890, "s":"}\\"{"}',
    );
    expect(event?.attributes['datacontenttype']).toBe('application/json');
  });

  test.each([
    [{ data: 'text', datacontenttype: 'text/plain' }, 'text'],
    [{ data: 'text' }, '"text"'],
    [{ data: 0 }, '0'],
    [{ data: false }, 'false'],
    [{ data: null }, null],
    [{ data_base64: 'AAH/', datacontenttype: 'application/octet-stream' }, '\u0000\u0001\u00ff'],
    [{ data_base64: '' }, ''],
  ])('%j', (members, wanted) => {
    const [event] = send(structured, { type, ...members });
    expect(event?.body?.toString('latin1') ?? null).toBe(wanted);
  });

  test('a batch', () => {
    const events = send(
      batch,
      ` [ {"type":"${type}","data":[1, 2]} ,{"type":"${type}","data":{}}]\n`,
    );
    expect(events.map((event) => event.body?.toString())).toEqual(['[1, 2]', '{}']);
  });
});

describe('refusals', () => {
  const cases: readonly [
    what: string,
    event: Record<string, unknown>,
    field: string,
    code: string,
  ][] = [
    ['no names', {}, 'source', 'missing_attribute'],
    ['no event type', { source: 'a', resourcetype: 'b' }, 'eventtype', 'missing_attribute'],
    ['a type of another shape', { type: 'account.created' }, 'type', 'invalid_type'],
    ['a type that contradicts', { type, eventtype: 'updated' }, 'type', 'type_mismatch'],
    ['another source', { type, source: 'crm' }, 'type', 'type_mismatch'],
    [
      'a bad source',
      { source: 'Led ger', resourcetype: 'a', eventtype: 'b' },
      'source',
      'invalid_source',
    ],
    [
      'a dotted resource',
      { source: 'a', resourcetype: 'a.b', eventtype: 'b' },
      'resourcetype',
      'invalid_resourcetype',
    ],
    ['an id that is no UUIDv7', { type, id: 'order-1' }, 'id', 'id_not_uuidv7'],
    ['specversion', { type, specversion: '0.3' }, 'specversion', 'unsupported_specversion'],
    ['time', { type, time: 'yesterday' }, 'time', 'invalid_time'],
    ['schemaversion', { type, schemaversion: '1' }, 'schemaversion', 'invalid_schemaversion'],
    ['an object as attribute', { type, region: {} }, 'region', 'invalid_attribute'],
    ['a fraction as attribute', { type, region: 1.5 }, 'region', 'invalid_attribute'],
    ['capitals in a name', { type, tenantId: 'acme' }, 'tenantId', 'invalid_attribute_name'],
    ['both bodies', { type, data: 1, data_base64: 'AA==' }, 'data_base64', 'ambiguous_data'],
    ['bad base64', { type, data_base64: 'A' }, 'data_base64', 'invalid_base64'],
    ['a control character', { type, subject: 'a\nb' }, 'subject', 'control_character'],
    ['a long subject', { type, subject: 's'.repeat(1025) }, 'subject', 'header_too_long'],
    ['a system event', { type, systemevent: true }, 'systemevent', 'reserved_attribute'],
  ];

  test.each(cases)('%s', (_what, event, field, code) => {
    const error = refusal(() => send(structured, event));
    expect(error).toMatchObject({ code: 'validation_failed', errors: [{ field, code }] });
    expect(error.detail).not.toContain('ce-');
    const inBatch = refusal(() => send(batch, [{ type }, event]));
    expect(inBatch.errors?.[0]).toMatchObject({ field: `1.${field}`, code });
  });

  test("another tenant's id is a 403", () => {
    const error = refusal(() => send(structured, { type, tenantid: 'other' }));
    expect([error.status, error.code, error.errors?.[0]?.field]).toEqual([
      403,
      'tenant_mismatch',
      'tenantid',
    ]);
    expect(
      refusal(() => send('text/plain', 'x', { 'ce-type': type, 'ce-tenantid': 'other' })).status,
    ).toBe(403);
  });

  test.each([
    ['broken JSON', structured, '{', 400],
    ['bytes that are not UTF-8', structured, Buffer.from([0x22, 0xff, 0x22]), 400],
    ['an array where one event belongs', structured, '[]', 400],
    ['an object where a batch belongs', batch, '{}', 400],
    ['an empty batch', batch, '[]', 400],
    ['a batch of numbers', batch, '[1]', 400],
    [
      'a batch that is too long',
      batch,
      JSON.stringify(Array.from({ length: limits.http_batch_events_max + 1 }, () => ({ type }))),
      400,
    ],
    ['another event format', 'application/cloudevents+avro', 'x', 415],
    ['no event at all', 'application/json', '{}', 415],
    ['nothing', undefined, '', 415],
    [
      'a body over 1 MiB',
      structured,
      `{"type":"${type}","data":"${'x'.repeat(limits.value_bytes_max)}"}`,
      413,
    ],
  ])('%s', (_what, content_type, body, status) => {
    expect(refusal(() => send(content_type, body)).status).toBe(status);
  });

  test('a header that is not UTF-8 names its field', () => {
    const error = refusal(() => send('text/plain', 'x', { 'ce-type': type, 'ce-subject': '%FF' }));
    expect(error.errors?.[0]).toMatchObject({ field: 'subject', code: 'invalid_utf8' });
  });

  test('a tenant off the roster', () => {
    const rules: ContractRules = { ...defaultRules, grammar: 'v1', tenants: new Set() };
    const body = Buffer.from('{"source":"a","resourcetype":"b","eventtype":"c"}');
    const input = { headers: { 'content-type': structured }, body };
    expect(refusal(() => parseHttpEvents(input, { ...context, rules })).code).toBe('forbidden');
  });
});

describe('properties', () => {
  test('only HubErrors are thrown, and what is accepted is readable', () => {
    const name = fc.constantFrom(
      'type',
      'source',
      'id',
      'time',
      'subject',
      'x',
      'data',
      'data_base64',
      'constructor',
      '__proto__',
    );
    const members = fc.array(fc.tuple(name, fc.jsonValue({ maxDepth: 2 })), { maxLength: 6 });
    fc.assert(
      fc.property(members, fc.boolean(), (pairs, typed) => {
        const text = [...(typed ? [['type', type] as const] : []), ...pairs]
          .map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`)
          .join(',');
        try {
          for (const { attributes, body } of send(structured, `{${text}}`)) {
            const verdict = decodeRecord(
              encodeRecord(attributes, body, defaultRules),
              defaultRules,
              now_ms,
            );
            expect(verdict).toMatchObject({ verdict: 'accept', event: { attributes } });
          }
        } catch (error) {
          expect(error).toBeInstanceOf(HubError);
        }
      }),
    );
  });

  test('any headers on a binary request', () => {
    const header = fc.tuple(
      fc.string().map((name) => `ce-${name}`),
      fc.string({ unit: 'binary' }),
    );
    fc.assert(
      fc.property(fc.array(header, { maxLength: 6 }), (headers) => {
        try {
          send('text/plain', 'x', { 'ce-type': type, ...Object.fromEntries(headers) });
        } catch (error) {
          expect(error).toBeInstanceOf(HubError);
        }
      }),
    );
  });

  test('slices are the text they were parsed from', () => {
    fc.assert(
      fc.property(
        fc.array(fc.dictionary(fc.string(), fc.jsonValue())),
        fc.constantFrom(undefined, 1),
        (array, indent) => {
          const json = Buffer.from(JSON.stringify(array, null, indent));
          const elements = sliceElements(json);
          const back = elements.map((element): unknown => JSON.parse(element.toString()));
          expect(back).toEqual(JSON.parse(json.toString()));
          for (const [index, object] of array.entries()) {
            for (const [key, value] of Object.entries(object)) {
              const member = sliceMember(elements[index] as Buffer, key);
              expect(JSON.stringify(JSON.parse(String(member)))).toBe(JSON.stringify(value));
            }
          }
        },
      ),
    );
  });
});
