import { describe, expect, test } from 'vitest';
import { recordWith } from '../../fixtures/index.ts';
import { defaultRules } from '../rules.ts';
import { decodeRecord } from './decode.ts';
import { encodeRecord } from './encode.ts';
import { type EnvelopeKey, signEnvelope, verifyEnvelope } from './envelope.ts';
import type { RawHeader } from './headers.ts';

const key: EnvelopeKey = {
  source: 'ledger',
  secret: Buffer.from(Array.from({ length: 32 }, (_, n) => n)),
};
const keys = new Map([['k1', key]]);
const signed_at = '2026-09-26T12:00:05.123456789Z';

function signed() {
  const record = recordWith();
  return { ...record, headers: signEnvelope(record, 'k1', key, signed_at) };
}

function replaced(name: string, value: string) {
  const record = signed();
  const headers = record.headers.map(
    ([k, v]): RawHeader => [k, k.toString() === name ? Buffer.from(value) : v],
  );
  return { ...record, headers };
}

test('the bytes agree with the vector published for the wire format', () => {
  const attributes = {
    specversion: '1.0',
    id: '0190a8e2-0000-7000-8000-000000000001',
    source: 'ledger',
    type: 'studio.lerian.ledger.transaction.created',
    time: '2026-09-26T12:00:00Z',
    schemaversion: '1.0.0',
    resourcetype: 'transaction',
    eventtype: 'created',
    tenantid: 'tenant-1',
    subject: 'acc-1',
    datacontenttype: 'application/json',
  };
  const record = encodeRecord(attributes, Buffer.from('{"amount":"10.00"}'), defaultRules);
  const headers = signEnvelope(record, 'k1', key, signed_at);
  expect(headers.at(-1)?.[1].toString()).toBe('v1.AJbY2MqfEv5EvFyAS70emQDM59tj3lpf0PBYeUW0ho4');
});

describe('verification', () => {
  test('a signed record is valid and still an ordinary record', () => {
    expect(verifyEnvelope(signed(), keys)).toEqual({ state: 'valid' });
    expect(decodeRecord(signed(), defaultRules, Date.UTC(2026, 0, 15)).verdict).toBe('accept');
  });

  test('no signature, or half of one', () => {
    expect(verifyEnvelope(recordWith(), keys).state).toBe('missing');
    const { headers } = signed();
    expect(verifyEnvelope({ headers: headers.slice(0, -1), value: null }, keys).state).toBe(
      'missing',
    );
  });

  test('a key we do not have', () => {
    expect(verifyEnvelope(signed(), new Map()).state).toBe('unknown_key');
  });

  test.each([
    ['ce-tenantid', 'other'],
    ['ce-source', 'crm'],
    ['ce-subject', ''],
    ['ce-sigts', '2026-09-26T12:00:06Z'],
    ['ce-sigts', 'now'],
    ['ce-sig', 'v2.AAAA'],
    ['ce-sig', `v1.${'A'.repeat(43)}`],
    ['ce-sig', ''],
  ])('%s changed to %j', (name, value) => {
    expect(verifyEnvelope(replaced(name, value), keys).state).toBe('invalid');
  });

  test('another body, a header taken away, a header that repeats', () => {
    const record = signed();
    expect(verifyEnvelope({ ...record, value: Buffer.from('{}') }, keys).state).toBe('invalid');
    const without = record.headers.filter(([name]) => name.toString() !== 'ce-subject');
    expect(verifyEnvelope({ ...record, headers: without }, keys).state).toBe('invalid');
    const again: RawHeader = [Buffer.from('CE_tenantid'), Buffer.from('default')];
    expect(verifyEnvelope({ ...record, headers: [...record.headers, again] }, keys).state).toBe(
      'invalid',
    );
  });

  test('a short secret is refused', () => {
    const short = { ...key, secret: Buffer.alloc(31) };
    expect(() => signEnvelope(recordWith(), 'k1', short, signed_at)).toThrow(RangeError);
  });
});
