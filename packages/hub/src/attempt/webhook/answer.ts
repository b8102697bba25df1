import type { IncomingHttpHeaders } from 'node:http';
import { AttemptError } from '../errors.ts';
import type { AttemptResult } from '../port.ts';

/** Bytes of an answer's body kept with the attempt. */
export const EXCERPT_BYTES_MAX = 4 * 1024;
/** 10 h, the longest step of the default retry schedule. */
export const RETRY_AFTER_SECONDS_MAX = 36_000;

interface Judgement {
  readonly outcome: AttemptResult['outcome'];
  readonly error: AttemptError | null;
}

const delivered: Judgement = { outcome: 'delivered', error: null };

/** What a complete answer means for the delivery. */
export function judgeStatus(
  status: number,
  headers: IncomingHttpHeaders,
  hostname: string,
): Judgement {
  if (status >= 200 && status < 300) return delivered;
  if (status === 410) {
    const message = `${hostname} answered 410: it wants no more events.`;
    return { outcome: 'gone', error: new AttemptError('gone', message) };
  }
  if (status >= 300 && status < 400) {
    const location = headers.location === undefined ? '' : ` to ${clip(headers.location)}`;
    const message = `${hostname} answered ${status}, a redirect${location}; redirects are not followed.`;
    return { outcome: 'failed', error: new AttemptError('redirect', message) };
  }
  const message = `${hostname} answered ${status}; 2xx is needed.`;
  return { outcome: 'failed', error: new AttemptError('status', message) };
}

/**
 * `Retry-After` as seconds from now: a number of seconds or an HTTP date, 0 for a date in the past,
 * capped at 10 h. Null when absent, unreadable or on a status that does not ask for waiting.
 */
export function retryAfter_seconds(
  status: number,
  headers: IncomingHttpHeaders,
  now_ms: number,
): number | null {
  if (status !== 429 && status !== 503) return null;
  const value = headers['retry-after']?.trim();
  if (value === undefined || value === '') return null;
  const seconds = /^\d+$/.test(value)
    ? Number(value)
    : Math.ceil((parseHttpDate_ms(value) - now_ms) / 1000);
  if (Number.isNaN(seconds)) return null;
  return Math.min(Math.max(seconds, 0), RETRY_AFTER_SECONDS_MAX);
}

/** Only the date forms of RFC 9110; `Date.parse` alone would take `7.5` for a month. */
function parseHttpDate_ms(value: string): number {
  return /^[A-Za-z]{3,9},? /.test(value) ? Date.parse(value) : Number.NaN;
}

/**
 * The start of a body as text that any UTF-8 store accepts, at most 4 KiB: broken sequences and
 * control characters become U+FFFD, a character cut in half at the end is left out. Null when empty.
 */
export function excerptOf(body: Buffer): string | null {
  if (body.length === 0) return null;
  const start = body.subarray(0, EXCERPT_BYTES_MAX);
  const plain = start.toString('latin1');
  if (printableAscii.test(plain)) return plain;
  const decoder = new TextDecoder('utf-8');
  // `stream` keeps a half character at the cut back instead of replacing it.
  const text = decoder
    .decode(start, { stream: start.length < body.length })
    .replaceAll(unsafeCharacters, '\uFFFD');
  return Buffer.byteLength(text) <= EXCERPT_BYTES_MAX ? text : clipToBytes(text);
}

// Most answers are a few such characters: a look costs 0.4 µs, a decoder of their own 1.3.
const printableAscii = /^[\t\n\r\x20-\x7e]*$/;

// Control characters apart from tab and line breaks; PostgreSQL refuses NUL, terminals obey escapes.
// oxlint-disable-next-line no-control-regex
const unsafeCharacters = /[\u0000-\u0008\u000B\u000C\u000E-\u001F\u007F-\u009F]/g;

/** Replacements are longer than what they replace, so the text can have outgrown its limit. */
function clipToBytes(text: string): string {
  const bytes = Buffer.from(text).subarray(0, EXCERPT_BYTES_MAX);
  return new TextDecoder('utf-8').decode(bytes, { stream: true });
}

function clip(text: string): string {
  const clean = text.replaceAll(unsafeCharacters, '\uFFFD');
  return clean.length > 200 ? `${clean.slice(0, 200)}…` : clean;
}
