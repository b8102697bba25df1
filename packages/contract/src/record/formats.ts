import { schemaMajorMax } from '../limits.ts';

const dash = 0x2d;

function hexDigit(code: number): number {
  if (code >= 0x30 && code <= 0x39) return code - 0x30;
  const lower = code | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}

/** Milliseconds since the epoch held in a UUIDv7 of either case, or -1 when the text is none. */
export function uuidV7Time_ms(text: string): number {
  if (text.length !== 36) return -1;
  let time = 0;
  for (let index = 0; index < 36; index++) {
    const code = text.charCodeAt(index);
    if (index === 8 || index === 13 || index === 18 || index === 23) {
      if (code !== dash) return -1;
      continue;
    }
    const digit = hexDigit(code);
    if (digit < 0) return -1;
    if (index < 13) time = time * 16 + digit;
    else if (index === 14 && digit !== 7) return -1;
    else if (index === 19 && (digit & 0b1100) !== 0b1000) return -1;
  }
  return time;
}

function number(text: string, from: number, digits: number): number {
  let value = 0;
  for (let index = from; index < from + digits; index++) {
    const digit = text.charCodeAt(index) - 0x30;
    if (!(digit >= 0 && digit <= 9)) return -1;
    value = value * 10 + digit;
  }
  return value;
}

function daysOf(year: number, month: number): number {
  if (month === 2) return (year % 4 === 0 && year % 100 !== 0) || year % 400 === 0 ? 29 : 28;
  return month === 4 || month === 6 || month === 9 || month === 11 ? 30 : 31;
}

/** Index after the seconds and their fraction, or -1. */
function endOfFraction(text: string): number {
  if (text[19] !== '.') return 19;
  let index = 20;
  while (index < text.length && number(text, index, 1) >= 0) index++;
  return index === 20 ? -1 : index;
}

function isZone(text: string, from: number): boolean {
  const first = text[from];
  if (first === 'Z' || first === 'z') return text.length === from + 1;
  if ((first !== '+' && first !== '-') || text.length !== from + 6) return false;
  const hours = number(text, from + 1, 2);
  const minutes = number(text, from + 4, 2);
  return text[from + 3] === ':' && hours >= 0 && hours < 24 && minutes >= 0 && minutes < 60;
}

/** RFC 3339 date-time: full date, time with seconds, any fraction, `Z` or an offset. */
export function isRfc3339(text: string): boolean {
  if (text.length < 20) return false;
  if (text[4] !== '-' || text[7] !== '-' || text[13] !== ':' || text[16] !== ':') return false;
  if (text[10] !== 'T' && text[10] !== 't') return false;
  const year = number(text, 0, 4);
  const month = number(text, 5, 2);
  const day = number(text, 8, 2);
  if (year < 0 || month < 1 || month > 12 || day < 1 || day > daysOf(year, month)) return false;
  const hour = number(text, 11, 2);
  const minute = number(text, 14, 2);
  const second = number(text, 17, 2);
  if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60) return false;
  const zone = endOfFraction(text);
  return zone > 0 && isZone(text, zone);
}

const semver =
  /^(0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)\.(?:0|[1-9][0-9]*)(?:-(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*)?(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?$/;

/** Major number of a semantic version, or -1 when the text is none. */
export function semverMajor(text: string): number {
  if (text === '1.0.0') return 1;
  if (!semver.test(text)) return -1;
  const major = Number.parseInt(text, 10);
  return major <= schemaMajorMax ? major : -1;
}

const source = /^[a-z0-9][a-z0-9_-]*$/;
const segment = /^[A-Za-z0-9_-]+$/;

/** A v3 source: one lower-case segment without dots. */
export function isSourceSegment(text: string): boolean {
  return source.test(text);
}

/** A resource or event name: one segment without dots. */
export function isNameSegment(text: string): boolean {
  return segment.test(text);
}

/** U+0000–U+001F and U+007F–U+009F. */
const controls = /\p{Cc}/u;

export function hasControlCharacter(text: string): boolean {
  return controls.test(text);
}

const traceParent = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]*)?$/;

/** W3C trace context: a `traceparent` that may be carried on. */
export function isTraceParent(text: string): boolean {
  return text.length <= 128 && traceParent.test(text);
}
