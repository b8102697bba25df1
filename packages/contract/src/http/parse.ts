import { isUtf8 } from 'node:buffer';
import { fieldError, HubError } from '../errors.ts';
import { limits } from '../limits.ts';
import type { Attributes, ContractRules } from '../rules.ts';
import { decodeHeaderValue } from '../webhook/percent.ts';
import { completeEvent } from './complete.ts';
import { sliceElements } from './slices.ts';
import { readStructured } from './structured.ts';

export interface HttpInput {
  /** As Node presents them: lower-case names, Latin-1 values. */
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
}

export interface HttpContext {
  /** The credential's tenant. */
  readonly tenant_id: string;
  readonly now_ms: number;
  /** A new UUIDv7. */
  newId(): string;
  readonly rules: ContractRules;
}

export interface ParsedEvent {
  readonly attributes: Attributes;
  readonly body: Buffer | null;
}

function lastValue(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value.at(-1) : value;
}

function decodedHeader(name: string, value: string): string {
  const text = decodeHeaderValue(value);
  if (text !== null) return text;
  throw fieldError(
    name,
    'invalid_utf8',
    `The header ce-${name} does not decode to UTF-8; percent-encode its bytes as UTF-8.`,
  );
}

function readBinary(input: HttpInput): ParsedEvent {
  const attributes: Record<string, string> = {};
  for (const [header, raw] of Object.entries(input.headers)) {
    const value = lastValue(raw);
    const name = header.toLowerCase();
    if (value !== undefined && name.startsWith('ce-')) {
      attributes[name.slice(3)] = decodedHeader(name.slice(3), value);
    }
  }
  if (Object.keys(attributes).length === 0) {
    throw new HubError(
      'unsupported_media_type',
      'The request is no CloudEvent. Send application/cloudevents+json, ' +
        'application/cloudevents-batch+json, or the attributes as ce- headers.',
    );
  }
  const content_type = lastValue(input.headers['content-type']);
  if (content_type) attributes['datacontenttype'] = content_type;
  return { attributes, body: input.body.length === 0 ? null : input.body };
}

function parseJson(body: Buffer): unknown {
  if (!isUtf8(body)) throw new HubError('malformed_json', 'The body is not valid UTF-8.');
  try {
    return JSON.parse(body.toString('utf8'));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new HubError('malformed_json', `The body is not valid JSON: ${why}`, { cause });
  }
}

function readBatch(body: Buffer): ParsedEvent[] {
  const batch = parseJson(body);
  if (!Array.isArray(batch)) {
    throw new HubError('malformed_request', 'A batch is a JSON array of CloudEvents.');
  }
  const events: readonly unknown[] = batch;
  if (events.length === 0 || events.length > limits.http_batch_events_max) {
    throw new HubError(
      'malformed_request',
      `A batch holds 1 to ${limits.http_batch_events_max} events; this one has ${events.length}.`,
    );
  }
  const slices = sliceElements(body);
  return events.map((event, index) => readStructured(event, slices[index] as Buffer, `${index}.`));
}

/** Trace context of the request itself, for events that bring none. */
function requestTrace(input: HttpInput): Record<string, string> {
  const trace: Record<string, string> = {};
  const parent = lastValue(input.headers['traceparent']);
  if (!parent) return trace;
  trace['traceparent'] = parent;
  const state = lastValue(input.headers['tracestate']);
  if (state) trace['tracestate'] = state;
  return trace;
}

/**
 * Reads CloudEvents from an HTTP request: structured, batch or binary. Attributes that follow from
 * others are filled in, and what is answered always passes `decodeRecord`. Throws a `HubError`
 * that names the field and what to do about it; one bad event refuses the whole batch.
 */
export function parseHttpEvents(input: HttpInput, context: HttpContext): ParsedEvent[] {
  const header = lastValue(input.headers['content-type']) ?? '';
  const media_type = (header.split(';', 1)[0] as string).trim().toLowerCase();
  const trace = requestTrace(input);
  const batch = media_type === 'application/cloudevents-batch+json';
  let read: ParsedEvent[];
  if (batch) read = readBatch(input.body);
  else if (media_type === 'application/cloudevents+json') {
    read = [readStructured(parseJson(input.body), input.body, '')];
  } else if (media_type.startsWith('application/cloudevents')) {
    throw new HubError(
      'unsupported_media_type',
      `${media_type} is not supported; send application/cloudevents+json or -batch+json.`,
    );
  } else read = [readBinary(input)];
  return read.map((event, index) =>
    completeEvent(event, { ...context, trace, path: batch ? `${index}.` : '' }),
  );
}
