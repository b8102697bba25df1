import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EXCERPT_BYTES_MAX, excerptOf, judgeStatus, retryAfter_seconds } from './answer.ts';

const now_ms = Date.parse('2026-03-01T12:00:00Z');

describe('judgeStatus', () => {
  it.each([
    [200, 'delivered', null],
    [202, 'delivered', null],
    [204, 'delivered', null],
    [299, 'delivered', null],
    [301, 'failed', 'redirect'],
    [304, 'failed', 'redirect'],
    [308, 'failed', 'redirect'],
    [400, 'failed', 'status'],
    [404, 'failed', 'status'],
    [410, 'gone', 'gone'],
    [413, 'failed', 'status'],
    [429, 'failed', 'status'],
    [500, 'failed', 'status'],
    [503, 'failed', 'status'],
    [599, 'failed', 'status'],
  ])('takes %i as %s', (status, outcome, code) => {
    const judgement = judgeStatus(status, {}, 'example.com');
    expect(judgement.outcome).toBe(outcome);
    expect(judgement.error?.code ?? null).toBe(code);
  });

  it('names where a redirect leads, without control characters and not at length', () => {
    const { error } = judgeStatus(302, { location: `https://\u001b[31m${'x'.repeat(900)}` }, 'a.b');
    expect(error?.message).toContain('https://\uFFFD[31mxxx');
    expect(error?.message.length).toBeLessThan(400);
  });
});

describe('retryAfter_seconds', () => {
  it.each([
    ['120', 120],
    [' 7 ', 7],
    ['0', 0],
    ['99999999', 36_000],
    ['99999999999999999999999', 36_000],
    ['Sun, 01 Mar 2026 12:00:30 GMT', 30],
    ['Sunday, 01-Mar-26 12:01:00 GMT', 60],
    ['Sun Mar  1 12:00:10 2026 GMT', 10],
    ['Sun, 01 Mar 2026 11:00:00 GMT', 0],
    ['Fri, 01 Mar 2036 12:00:00 GMT', 36_000],
    ['-5', null],
    ['1.5', null],
    ['0x10', null],
    ['1e3', null],
    ['soon', null],
    ['', null],
    ['2026', 2026],
  ])('reads "%s" as %s', (value, expected) => {
    expect(retryAfter_seconds(429, { 'retry-after': value }, now_ms)).toBe(expected);
    expect(retryAfter_seconds(503, { 'retry-after': value }, now_ms)).toBe(expected);
  });

  it('is only for 429 and 503', () => {
    expect(retryAfter_seconds(500, { 'retry-after': '5' }, now_ms)).toBeNull();
    expect(retryAfter_seconds(200, { 'retry-after': '5' }, now_ms)).toBeNull();
    expect(retryAfter_seconds(429, {}, now_ms)).toBeNull();
  });
});

describe('excerptOf', () => {
  it('keeps short text as it is', () => {
    expect(excerptOf(Buffer.from('{"ok":true}\r\n\tdone ü 漢 🎉'))).toBe(
      '{"ok":true}\r\n\tdone ü 漢 🎉',
    );
    expect(excerptOf(Buffer.alloc(0))).toBeNull();
  });

  it('leaves out a character that the limit would cut in half', () => {
    const body = Buffer.from(`${'a'.repeat(EXCERPT_BYTES_MAX - 1)}ü`);
    expect(excerptOf(body)).toBe('a'.repeat(EXCERPT_BYTES_MAX - 1));
  });

  it('replaces what a UTF-8 store or a terminal would choke on', () => {
    expect(excerptOf(Buffer.from([0x61, 0x00, 0x1b, 0xff, 0x62]))).toBe('a\uFFFD\uFFFD\uFFFDb');
  });

  it('is valid text of at most 4 KiB whatever the body is', () => {
    const bytes = fc.uint8Array({ maxLength: 3 * EXCERPT_BYTES_MAX, size: 'max' });
    fc.assert(
      fc.property(bytes, (body) => {
        const text = excerptOf(Buffer.from(body)) ?? '';
        expect(Buffer.byteLength(text)).toBeLessThanOrEqual(EXCERPT_BYTES_MAX);
        expect(text.isWellFormed()).toBe(true);
        expect(text).not.toContain('\u0000');
      }),
      { numRuns: 50 },
    );
  });
});
