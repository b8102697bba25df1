import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { catalogueEvents, malformedRecords, recordWith } from '../../fixtures/index.ts';
import { limits } from '../limits.ts';
import { type ContractRules, defaultRules } from '../rules.ts';
import { quarantineReasons, type Verdict } from '../verdict.ts';
import { decodeRecord, type WireRecord } from './decode.ts';
import { encodeRecord } from './encode.ts';
import type { RawHeader } from './headers.ts';

const now_ms = Date.UTC(2026, 0, 15, 12);
const decode = (record: WireRecord, rules: ContractRules = defaultRules): Verdict =>
  decodeRecord(record, rules, now_ms);

function accepted(record: WireRecord, rules: ContractRules = defaultRules) {
  const verdict = decode(record, rules);
  if (verdict.verdict !== 'accept') throw new Error(JSON.stringify(verdict));
  return verdict.event;
}

function withHeaders(...extra: readonly (readonly [string, string | Buffer])[]): WireRecord {
  const record = recordWith();
  const more = extra.map(
    ([key, value]): RawHeader => [
      Buffer.from(key),
      typeof value === 'string' ? Buffer.from(value) : value,
    ],
  );
  return { ...record, headers: [...record.headers, ...more] };
}

describe('accept', () => {
  test('every event of the catalogue', () => {
    for (const { attributes, body } of catalogueEvents()) {
      const event = accepted(encodeRecord(attributes, body, defaultRules));
      expect(event).toMatchObject({
        tenant_id: 'default',
        id: attributes['id'],
        origin: attributes['source'],
        event_type: `${attributes['resourcetype']}.${attributes['eventtype']}`,
        schema_major: 1,
        attributes,
      });
    }
  });

  test('names in any case and with either prefix', () => {
    const record = recordWith();
    const shouted = record.headers.map(([key, value], index): RawHeader => {
      const name = key.toString().replace('-', index % 2 === 0 ? '_' : '-');
      return [Buffer.from(index % 3 === 0 ? name : name.toUpperCase()), value];
    });
    expect(decode({ ...record, headers: shouted })).toEqual(decode(record));
  });

  test('the last value of a repeated header, whatever prefix and case', () => {
    const record = withHeaders(
      ['ce-subject', 'second'],
      ['CE_SUBJECT', 'third'],
      ['Ce-X', '1'],
      ['ce_x', '2'],
    );
    expect(accepted(record).attributes).toMatchObject({ subject: 'third', x: '2' });
  });

  test('an overwritten value is never looked at', () => {
    const broken: RawHeader = [Buffer.from('ce-subject'), Buffer.from([0xff])];
    const record = recordWith();
    expect(decode({ ...record, headers: [broken, ...record.headers] }).verdict).toBe('accept');
  });

  test('a null value and an empty value', () => {
    expect(decode(recordWith({}, null)).verdict).toBe('accept');
    expect(decode(recordWith({}, Buffer.alloc(0))).verdict).toBe('accept');
  });

  test('a value of exactly 1 MiB and texts at their ceilings', () => {
    const changes = {
      'ce-subject': 's'.repeat(limits.subject_bytes_max),
      'ce-tenantid': 't'.repeat(limits.tenant_bytes_max),
    };
    expect(decode(recordWith(changes, Buffer.alloc(limits.value_bytes_max))).verdict).toBe(
      'accept',
    );
  });

  test('content-type stands in for ce-datacontenttype, which wins', () => {
    const bare = recordWith({ 'ce-datacontenttype': null, 'Content-Type': 'text/plain' });
    expect(accepted(bare).attributes['datacontenttype']).toBe('text/plain');
    const both = withHeaders(['content-type', 'text/plain']);
    expect(accepted(both).attributes['datacontenttype']).toBe('application/json');
  });

  test('an id in capitals is stored in lower case', () => {
    const id = '019BC1F1-8600-7000-8000-00000000ABCD';
    const event = accepted(recordWith({ 'ce-id': id }));
    expect([event.id, event.attributes['id']]).toEqual([id.toLowerCase(), id.toLowerCase()]);
  });

  test('an old id, and one up to the horizon ahead', () => {
    const at = (time_ms: number) => {
      const hex = time_ms.toString(16).padStart(12, '0');
      return recordWith({ 'ce-id': `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-000000000000` });
    };
    expect(decode(at(0)).verdict).toBe('accept');
    expect(decode(at(now_ms + defaultRules.id_future_max_ms)).verdict).toBe('accept');
    expect(decode(at(now_ms + defaultRules.id_future_max_ms + 1))).toMatchObject({
      reason: 'id_time_out_of_range',
    });
  });

  test('extensions, signatures and trace context are kept', () => {
    const parent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const record = withHeaders(
      ['ce-sigkid', 'k1'],
      ['ce-region', 'São Paulo'],
      ['traceparent', parent],
      ['tracestate', 'a=1,b=2'],
      ['x-unrelated', Buffer.from([0xff])],
    );
    const { attributes } = accepted(record);
    expect(attributes).toMatchObject({
      sigkid: 'k1',
      region: 'São Paulo',
      traceparent: parent,
      tracestate: 'a=1,b=2',
    });
    expect(attributes).not.toHaveProperty('x-unrelated');
  });

  test('broken trace context is left out, the event stays', () => {
    const record = withHeaders(['traceparent', 'nonsense\r\nX-Evil: 1'], ['tracestate', 'a\u0000']);
    const { attributes } = accepted(record);
    expect(attributes).not.toHaveProperty('traceparent');
    expect(attributes).not.toHaveProperty('tracestate');
  });

  test('schema majors', () => {
    expect(accepted(recordWith({ 'ce-schemaversion': '12.4.1-rc.1+5' })).schema_major).toBe(12);
    expect(accepted(recordWith({ 'ce-schemaversion': '0.1.0' })).schema_major).toBe(0);
  });
});

describe('refuse', () => {
  test.each(malformedRecords())('$reason: $name', ({ record, verdict, reason }) => {
    expect(decode(record)).toMatchObject({ verdict, reason });
  });

  test('the fixtures cover every reason', () => {
    const covered = new Set(malformedRecords().map(({ reason }) => reason));
    expect(quarantineReasons.filter((reason) => !covered.has(reason))).toEqual([]);
  });

  test('only the literal true makes a system event', () => {
    expect(decode(recordWith({ 'ce-systemevent': 'false' })).verdict).toBe('accept');
    expect(decode(recordWith({ 'ce-systemevent': 'TRUE' })).verdict).toBe('accept');
  });

  test('order: text, then system event, then required, then values, then tenant', () => {
    const changes: Record<string, string | Buffer | null> = {
      'ce-region': Buffer.from([0xff]),
      'ce-systemevent': 'true',
      'ce-time': null,
      'ce-specversion': '2.0',
      'ce-tenantid': null,
    };
    const reasons: string[] = [];
    for (const fixed of [
      { 'ce-region': 'x' },
      { 'ce-systemevent': 'no' },
      { 'ce-time': '2026-01-01T00:00:00Z' },
      { 'ce-specversion': '1.0' },
      { 'ce-tenantid': 'a' },
    ]) {
      const verdict = decode(recordWith(changes));
      reasons.push('reason' in verdict ? verdict.reason : verdict.verdict);
      Object.assign(changes, fixed);
    }
    expect(reasons).toEqual([
      'invalid_utf8',
      'system_event',
      'missing_header',
      'unsupported_specversion',
      'missing_tenant',
    ]);
    expect(decode(recordWith(changes)).verdict).toBe('accept');
  });

  test('a structured-mode record says what is wrong with it', () => {
    const headers: RawHeader[] = [
      [Buffer.from('content-type'), Buffer.from('application/cloudevents+json')],
    ];
    const verdict = decode({ topic: 't', headers, value: Buffer.from('{}') });
    expect(verdict).toMatchObject({ reason: 'missing_header' });
    expect(verdict).toHaveProperty('detail', expect.stringContaining('Structured mode'));
  });
});

describe('v1', () => {
  const rules: ContractRules = { ...defaultRules, grammar: 'v1', tenants: new Set(['default']) };
  const v1 = { 'ce-type': 'studio.lerian.account.created', 'ce-source': 'lerian://midaz/ledger' };

  test('the type leaves the producer out, and any source goes', () => {
    expect(accepted(recordWith(v1), rules)).toMatchObject({
      origin: 'lerian://midaz/ledger',
      event_type: 'account.created',
    });
    expect(decode(recordWith(), rules)).toMatchObject({ reason: 'type_mismatch' });
  });

  test('the roster gate drops an unknown tenant, and null opens it', () => {
    const record = recordWith({ ...v1, 'ce-tenantid': 'stranger' });
    expect(decode(record, rules)).toEqual({ verdict: 'drop', reason: 'unknown_tenant' });
    expect(decode(record, { ...rules, tenants: null }).verdict).toBe('accept');
  });

  test('v3 has no roster gate', () => {
    const gated: ContractRules = { ...defaultRules, tenants: new Set() };
    expect(decode(recordWith(), gated).verdict).toBe('accept');
  });
});

describe('properties', () => {
  const header = fc.tuple(
    fc.oneof(
      fc.uint8Array({ maxLength: 24 }).map((bytes) => Buffer.from(bytes)),
      fc
        .constantFrom(
          ...recordWith().headers.map(([key]) => key.toString()),
          'ce-systemevent',
          'ce-x',
        )
        .map((key) => Buffer.from(key)),
    ),
    fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)),
  );

  test('never throws, whatever the headers', () => {
    fc.assert(
      fc.property(fc.array(header, { maxLength: 30 }), fc.boolean(), (extra, valid) => {
        const headers = valid ? [...recordWith().headers, ...extra] : extra;
        const verdict = decode({ topic: 'x', headers, value: null });
        expect(['accept', 'drop', 'quarantine']).toContain(verdict.verdict);
      }),
    );
  });

  test('what is written is read back the same', () => {
    const name = fc.stringMatching(/^[a-z][a-z0-9_]{0,20}$/);
    const text = fc
      .string({ unit: 'grapheme', minLength: 1, maxLength: 60 })
      .filter((value) => !/\p{Cc}/u.test(value) && value.isWellFormed());
    const event = fc.record({
      source: name,
      resource: name,
      event: name,
      tenantid: text.filter((value) => value.trim() !== ''),
      subject: text,
      extension: text,
      body: fc.option(fc.uint8Array({ maxLength: 100 }), { nil: null }),
    });
    fc.assert(
      fc.property(event, ({ source, resource, event, tenantid, subject, extension, body }) => {
        const attributes = {
          specversion: '1.0',
          id: '019bc1f1-8600-7000-8000-00000000000a',
          source,
          type: `studio.lerian.${source}.${resource}.${event}`,
          time: '2026-01-15T12:00:00Z',
          schemaversion: '1.0.0',
          resourcetype: resource,
          eventtype: event,
          tenantid,
          subject,
          extension,
        };
        const value = body === null ? null : Buffer.from(body);
        const record = encodeRecord(attributes, value, defaultRules);
        expect(record.value).toBe(value);
        expect(record.key?.toString()).toBe(tenantid);
        expect(accepted(record).attributes).toEqual(attributes);
      }),
    );
  });
});
