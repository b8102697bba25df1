import { type Attributes, type ContractRules, topicFor } from '../rules.ts';
import type { RawHeader } from './headers.ts';

/** A record ready for the stream. */
export interface EncodedRecord {
  readonly topic: string;
  /** The tenant, so that one tenant's events share a partition and keep their order. */
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: RawHeader[];
}

const keys = new Map<string, Buffer>();
/** Extension names come from outside, so only this many keys are kept. */
const keysKept_max = 256;

function headerKey(name: string): Buffer {
  const known = keys.get(name);
  if (known !== undefined) return known;
  const plain = name === 'traceparent' || name === 'tracestate';
  const key = Buffer.from(plain ? name : `ce-${name}`);
  if (keys.size < keysKept_max) keys.set(name, key);
  return key;
}

/** Writes an event in binary content mode. Attributes are not checked here: `decodeRecord` is the one judge. */
export function encodeRecord(
  attributes: Attributes,
  body: Buffer | null,
  rules: ContractRules,
): EncodedRecord {
  const headers: RawHeader[] = [];
  for (const [name, value] of Object.entries(attributes)) {
    headers.push([headerKey(name), Buffer.from(value)]);
  }
  const tenant = attributes['tenantid'];
  return {
    topic: topicFor(attributes, rules),
    key: tenant ? Buffer.from(tenant) : null,
    value: body,
    headers,
  };
}
