import { isUtf8 } from 'node:buffer';
import type { Attributes } from '../rules.ts';

const jsonMediaType = /^(?:application|text)\/(?:json|[^;\s]+\+json)\s*(?:;|$)/i;

/** True for JSON media types; an absent content type means JSON. */
export function isJsonContentType(content_type: string | undefined): boolean {
  return content_type === undefined || jsonMediaType.test(content_type);
}

type Reviver = (
  this: unknown,
  key: string,
  value: unknown,
  context: { source?: string },
) => unknown;
// The source text access of JSON.parse is newer than the language library the compiler knows.
const parseWithSource = JSON.parse as (text: string, reviver: Reviver) => unknown;
const { rawJSON: rawJson } = JSON as unknown as { rawJSON: (this: void, text: string) => unknown };

const riskyNumber = /[0-9][0-9.]{15}|[0-9][eE]/;

/** Parses JSON; a number that a double cannot hold keeps its own digits when written out again. */
function parseLossless(text: string): unknown {
  if (!riskyNumber.test(text)) return JSON.parse(text);
  return parseWithSource(text, (_key, value, context) => {
    if (typeof value !== 'number' || context.source === undefined) return value;
    return String(value) === context.source ? value : rawJson(context.source);
  });
}

/**
 * The structured JSON form of an event as an object: a JSON body inline as `data`, any other as
 * `data_base64`, none when there is no body. Write it with `JSON.stringify`.
 */
export function toCloudEventJson(
  attributes: Attributes,
  body: Buffer | null,
): Record<string, unknown> {
  const event: Record<string, unknown> = { ...attributes };
  if (body === null) return event;
  if (isJsonContentType(attributes['datacontenttype']) && isUtf8(body) && !isTooDeep(body)) {
    try {
      event['data'] = parseLossless(body.toString('utf8'));
      return event;
    } catch {
      // The content type claims JSON but the bytes are something else: they travel as they are.
    }
  }
  event['data_base64'] = body.toString('base64');
  return event;
}

function isJson(body: Buffer): boolean {
  if (!isUtf8(body)) return false;
  try {
    JSON.parse(body.toString('utf8'));
    return true;
  } catch {
    return false;
  }
}

/** The same form as bytes to send; a JSON body goes in byte for byte. */
export function toStructuredBody(attributes: Attributes, body: Buffer | null): Buffer {
  const head = JSON.stringify(attributes);
  if (body === null) return Buffer.from(head);
  const open = head.slice(0, -1) + (head === '{}' ? '' : ',');
  if (isJsonContentType(attributes['datacontenttype']) && isJson(body)) {
    return Buffer.concat([Buffer.from(`${open}"data":`), body, Buffer.from('}')]);
  }
  return Buffer.from(`${open}"data_base64":"${body.toString('base64')}"}`);
}

/** Deeper than any reader's stack should have to go; writing 5 000 levels overflows ours. */
const nesting_max = 512;

/** Counts brackets outside strings; good enough for what `JSON.parse` will judge anyway. */
function isTooDeep(json: Buffer): boolean {
  let depth = 0;
  let inString = false;
  for (let at = 0; at < json.length; at += 1) {
    const byte = json[at];
    if (inString) {
      if (byte === 0x5c) at += 1;
      else if (byte === 0x22) inString = false;
    } else if (byte === 0x22) inString = true;
    else if (byte === 0x5b || byte === 0x7b) {
      depth += 1;
      if (depth > nesting_max) return true;
    } else if (byte === 0x5d || byte === 0x7d) depth -= 1;
  }
  return false;
}
