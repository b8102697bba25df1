import { describe, expect, test } from 'vitest';
import { checkEventTypePattern, matchesEventType } from './event-types.ts';
import { checkTenantHeaders } from './tenant-headers.ts';

describe('event types', () => {
  test.each(['account.created', 'loan_application.approved', 'a-b.c-d', 'transaction.*', '*'])(
    '%s may be asked for',
    (pattern) => {
      expect(checkEventTypePattern(pattern)).toBe(true);
    },
  );

  test.each([
    '',
    'account',
    '*.created',
    '*.*',
    'a.b.c',
    'a.*.c',
    'a.b*',
    ' a.b',
    'studio.lerian.ledger.account.created',
    `${'r'.repeat(129)}.x`,
    `x.${'e'.repeat(129)}`,
  ])('%j may not', (pattern) => {
    expect(checkEventTypePattern(pattern)).toBe(false);
  });

  test.each([
    ['*', 'a.b', true],
    ['a.b', 'a.b', true],
    ['a.*', 'a.b', true],
    ['a.*', 'ab.c', false],
    ['ab.*', 'a.b', false],
    ['a.b', 'a.c', false],
  ])('%s against %s', (pattern, event_type, wanted) => {
    expect(matchesEventType(pattern, event_type)).toBe(wanted);
  });
});

describe('headers of tenants', () => {
  test('ordinary ones may be sent', () => {
    const headers = { 'X-Env': 'prod', Authorization: 'Bearer abc', Cookie: 'a=b; c=d' };
    expect(checkTenantHeaders(headers)).toEqual([]);
  });

  test.each([
    ['Host', 'evil.example'],
    ['content-length', '0'],
    ['Transfer-Encoding', 'chunked'],
    ['Connection', 'close'],
    ['Proxy-Authorization', 'x'],
    ['webhook-signature', 'v1,x'],
    ['CE-Id', 'x'],
    ['x-lerian-event-id', 'x'],
    ['Content-Type', 'text/plain'],
    ['X Y', 'a'],
    ['', 'a'],
    ['X-A', 'a\r\nX-B: c'],
    ['X-A', 'São Paulo'],
    ['X-A', ' padded'],
    ['X-A', 'x'.repeat(4097)],
  ])('%s: %j is refused', (name, value) => {
    const [fault] = checkTenantHeaders({ [name]: value });
    expect(fault).toMatchObject({ field: `destination.headers.${name}` });
  });

  test('not twice under one name, and not too many', () => {
    expect(checkTenantHeaders({ 'X-A': '1', 'x-a': '2' })).toHaveLength(1);
    const many = Object.fromEntries(Array.from({ length: 33 }, (_, n) => [`X-${n}`, 'a']));
    expect(checkTenantHeaders(many)).toMatchObject([{ field: 'destination.headers' }]);
  });
});
