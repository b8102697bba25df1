import type { Attributes } from '../rules.ts';
import { toStructuredBody } from './json.ts';
import { encodeHeaderValue } from './percent.ts';
import { signWebhook } from './signature.ts';

export interface WebhookInput {
  readonly event: {
    readonly attributes: Attributes;
    readonly body: Buffer | null;
    readonly event_type: string;
  };
  readonly format: 'binary' | 'structured';
  /** Such as `X-Lerian-`. */
  readonly header_prefix: string;
  /** Live secrets, newest first; never empty, because the hub never sends unsigned. */
  readonly secrets: readonly string[];
  /** 1, 2, 3 … */
  readonly attempt: number;
  readonly delivery_attempt_id: string;
  readonly replay_id: string | null;
  readonly timestamp_seconds: number;
  readonly user_agent: string;
  /** The tenant's own headers; the hub's win over them. */
  readonly extra_headers: Readonly<Record<string, string>>;
}

export interface WebhookRequest {
  readonly headers: Record<string, string>;
  readonly body: Buffer;
}

const defaultContentType = 'application/json';
const structuredContentType = 'application/cloudevents+json; charset=utf-8';
const noBody = Buffer.alloc(0);

/** Context attributes that have a header of their own outside the `ce-` family. */
function hasOwnHeader(name: string): boolean {
  return name === 'datacontenttype' || name === 'traceparent' || name === 'tracestate';
}

function addExtraHeaders(
  headers: Record<string, string>,
  extra: Readonly<Record<string, string>>,
): void {
  const names = Object.keys(extra);
  if (names.length === 0) return;
  const taken = new Set(Object.keys(headers).map((name) => name.toLowerCase()));
  for (const name of names) {
    if (!taken.has(name.toLowerCase())) headers[name] = extra[name] as string;
  }
}

/**
 * Builds the POST of one attempt. `binary` sends the stored bytes with the attributes as `ce-`
 * headers; `structured` sends one JSON document, and the signatures cover that document.
 * Throws a RangeError when there is no secret to sign with.
 */
export function buildWebhookRequest(input: WebhookInput): WebhookRequest {
  const { event, header_prefix: prefix } = input;
  const { attributes } = event;
  if (input.secrets.length === 0) throw new RangeError('There is no secret to sign with.');
  const structured = input.format === 'structured';
  const body = structured ? toStructuredBody(attributes, event.body) : (event.body ?? noBody);
  const id = attributes['id'] as string;
  const headers: Record<string, string> = {
    'user-agent': input.user_agent,
    [`${prefix}Event-Id`]: id,
    [`${prefix}Delivery-Id`]: input.delivery_attempt_id,
    [`${prefix}Event-Type`]: encodeHeaderValue(event.event_type),
    [`${prefix}Attempt`]: String(input.attempt),
    'webhook-id': id,
    'webhook-timestamp': String(input.timestamp_seconds),
    'webhook-signature': input.secrets
      .map((secret) => signWebhook(secret, id, input.timestamp_seconds, body))
      .join(' '),
  };
  if (input.replay_id !== null) headers[`${prefix}Replay`] = input.replay_id;
  const stored = attributes['datacontenttype'];
  if (structured) headers['content-type'] = structuredContentType;
  else if (stored !== undefined) headers['content-type'] = encodeContentType(stored);
  // A bodiless event names no type: receivers refuse empty JSON.
  else if (event.body !== null) headers['content-type'] = defaultContentType;
  if (!structured) {
    for (const name of Object.keys(attributes)) {
      if (!hasOwnHeader(name))
        headers[`ce-${name}`] = encodeHeaderValue(attributes[name] as string);
    }
  }
  if (attributes['traceparent'] !== undefined) headers['traceparent'] = attributes['traceparent'];
  if (attributes['tracestate'] !== undefined) headers['tracestate'] = attributes['tracestate'];
  addExtraHeaders(headers, input.extra_headers);
  return { headers, body };
}

/** A media type keeps its spaces and quotes; only what no header can carry is encoded. */
function encodeContentType(value: string): string {
  return /^[ -~]*$/.test(value) ? value : encodeHeaderValue(value);
}
