import fc from 'fast-check';
import { expect, test } from 'vitest';
import { isRfc3339, isTraceParent, semverMajor, uuidV7Time_ms } from './formats.ts';

test.each([
  '2026-01-15T12:00:00Z',
  '2026-01-15t12:00:00z',
  '2024-02-29T23:59:60Z',
  '2026-01-15T12:00:00.1+05:30',
  '2026-01-15T12:00:00.123456789-00:00',
])('%s is an RFC 3339 time', (text) => {
  expect(isRfc3339(text)).toBe(true);
});

test.each([
  '',
  '2026-01-15',
  '2026-01-15 12:00:00Z',
  '2026-01-15T12:00:00',
  '2026-01-15T12:00Z',
  '2026-13-15T12:00:00Z',
  '2026-02-29T12:00:00Z',
  '2026-00-10T12:00:00Z',
  '2026-01-15T24:00:00Z',
  '2026-01-15T12:60:00Z',
  '2026-01-15T12:00:61Z',
  '2026-01-15T12:00:00.Z',
  '2026-01-15T12:00:00+0530',
  '2026-01-15T12:00:00+24:00',
  '2026-01-15T12:00:00ZZ',
  '+026-01-15T12:00:00Z',
  'Thu, 15 Jan 2026 12:00:00 GMT',
])('%s is no RFC 3339 time', (text) => {
  expect(isRfc3339(text)).toBe(false);
});

test('every time that Date writes is accepted', () => {
  const years = { min: new Date('0000-01-01T00:00:00Z'), max: new Date('9999-12-31T23:59:59Z') };
  fc.assert(
    fc.property(fc.date({ ...years, noInvalidDate: true }), (date) => {
      expect(isRfc3339(date.toISOString())).toBe(true);
    }),
  );
});

test.each([
  ['1.0.0', 1],
  ['0.0.1', 0],
  ['10.2.3-alpha.1+build.5', 10],
  ['2147483647.0.0', 2_147_483_647],
  ['2147483648.0.0', -1],
  ['1', -1],
  ['1.0', -1],
  ['v1.0.0', -1],
  ['01.0.0', -1],
  ['1.0.0-', -1],
  ['1.0.0 ', -1],
  ['', -1],
])('the major of %j is %d', (text, major) => {
  expect(semverMajor(text)).toBe(major);
});

test.each([
  ['019bc1f1-8600-7000-8000-00000000000a', 0x019bc1f18600],
  ['019BC1F1-8600-7FFF-BFFF-FFFFFFFFFFFF', 0x019bc1f18600],
  ['019bc1f1-8600-4000-8000-00000000000a', -1],
  ['019bc1f1-8600-7000-c000-00000000000a', -1],
  ['019bc1f1-8600-7000-0000-00000000000a', -1],
  ['019bc1f186007000800000000000000a', -1],
  ['019bc1f1-8600-7000-8000-00000000000g', -1],
  ['{19bc1f1-8600-7000-8000-00000000000}', -1],
])('the time in %s', (text, time_ms) => {
  expect(uuidV7Time_ms(text)).toBe(time_ms);
});

test('trace parents', () => {
  const parent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
  expect(isTraceParent(parent)).toBe(true);
  expect(isTraceParent(parent.toUpperCase())).toBe(false);
  expect(isTraceParent(`${parent}\r\n`)).toBe(false);
});
