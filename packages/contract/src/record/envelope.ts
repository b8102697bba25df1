import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import { quote } from '../verdict.ts';
import { isRfc3339 } from './formats.ts';
import type { RawHeader } from './headers.ts';
import { isEventHeader } from './names.ts';

/** A producer's key. It speaks for one source only. */
export interface EnvelopeKey {
  readonly source: string;
  /** At least 32 bytes. */
  readonly secret: Buffer;
}

export type EnvelopeVerdict =
  | { readonly state: 'valid' }
  | { readonly state: 'missing' | 'unknown_key' | 'invalid'; readonly detail: string };

/** What the signature covers, in the order of the bytes. */
const signedNames = [
  'specversion',
  'id',
  'source',
  'type',
  'time',
  'subject',
  'tenantid',
  'datacontenttype',
  'dataschema',
  'schemaversion',
  'resourcetype',
  'eventtype',
  'systemevent',
  'sigkid',
  'sigts',
] as const;
const relevant: ReadonlySet<string> = new Set([...signedNames, 'sig']);

const domain = Buffer.from('lerian.streaming.sig.v1\0');
const version = 'v1.';
const mac_bytes = 32;

/** The signed headers of a record by name, or the name of one that repeats. */
function pickSigned(headers: readonly RawHeader[]): Map<string, Buffer> | string {
  const picked = new Map<string, Buffer>();
  for (const [key, value] of headers) {
    if (!isEventHeader(key)) continue;
    const name = key.toString('latin1', 3).toLowerCase();
    if (!relevant.has(name)) continue;
    if (picked.has(name)) return name;
    picked.set(name, value);
  }
  return picked;
}

function macOf(fields: ReadonlyMap<string, Buffer>, value: Buffer | null, secret: Buffer): Buffer {
  const mac = createHmac('sha256', secret).update(domain);
  for (const name of signedNames) {
    const bytes = fields.get(name);
    const head = Buffer.alloc(5);
    head.writeUInt8(bytes === undefined ? 0 : 1, 0);
    head.writeUInt32BE(bytes?.length ?? 0, 1);
    mac.update(head);
    if (bytes !== undefined) mac.update(bytes);
  }
  const body = createHash('sha256').update(value ?? Buffer.alloc(0));
  return mac.update(body.digest()).digest();
}

function invalid(detail: string): EnvelopeVerdict {
  return { state: 'invalid', detail };
}

function readMac(text: string): Buffer | null {
  if (!text.startsWith(version) || !/^[A-Za-z0-9_-]{43}$/.test(text.slice(version.length))) {
    return null;
  }
  return Buffer.from(text.slice(version.length), 'base64url');
}

/**
 * Judges the producer's signature on a record (`ce-sigkid`, `ce-sigts`, `ce-sig`): HMAC-SHA256 over
 * the raw header bytes and the body. Its age is not checked, since a backlog is legitimately old.
 * A signed header that repeats makes it invalid, because readers differ in which one they keep.
 */
export function verifyEnvelope(
  record: { readonly headers: readonly RawHeader[]; readonly value: Buffer | null },
  keys: ReadonlyMap<string, EnvelopeKey>,
): EnvelopeVerdict {
  const fields = pickSigned(record.headers);
  if (typeof fields === 'string') return invalid(`ce-${fields} appears more than once.`);
  const kid = fields.get('sigkid')?.toString();
  const signed_at = fields.get('sigts')?.toString();
  const signature = fields.get('sig')?.toString();
  if (kid === undefined || signed_at === undefined || signature === undefined) {
    return { state: 'missing', detail: 'ce-sigkid, ce-sigts and ce-sig are not all present.' };
  }
  const key = keys.get(kid);
  if (key === undefined) {
    return { state: 'unknown_key', detail: `The key ${quote(kid)} is not configured.` };
  }
  if (fields.get('source')?.toString() !== key.source) {
    return invalid(`The key ${quote(kid)} speaks for the source ${quote(key.source)} only.`);
  }
  const presented = readMac(signature);
  if (presented === null) return invalid('ce-sig is not of the form v1.<base64url>.');
  if (!isRfc3339(signed_at)) return invalid('ce-sigts is not an RFC 3339 time.');
  return timingSafeEqual(presented, macOf(fields, record.value, key.secret))
    ? { state: 'valid' }
    : invalid('The signature does not match the headers and the value.');
}

/**
 * Adds the three signature headers as a producer does. `signed_at` is an RFC 3339 time in UTC.
 * Throws a RangeError for a secret under 32 bytes.
 */
export function signEnvelope(
  record: { readonly headers: readonly RawHeader[]; readonly value: Buffer | null },
  kid: string,
  key: EnvelopeKey,
  signed_at: string,
): RawHeader[] {
  if (key.secret.length < mac_bytes) throw new RangeError('An envelope key has at least 32 bytes.');
  const headers: RawHeader[] = [
    ...record.headers,
    [Buffer.from('ce-sigkid'), Buffer.from(kid)],
    [Buffer.from('ce-sigts'), Buffer.from(signed_at)],
  ];
  const fields = pickSigned(headers);
  if (typeof fields === 'string') throw new RangeError(`ce-${fields} appears more than once`);
  const mac = macOf(fields, record.value, key.secret).toString('base64url');
  headers.push([Buffer.from('ce-sig'), Buffer.from(version + mac)]);
  return headers;
}
