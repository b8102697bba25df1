import { fieldError, HubError } from '../errors.ts';
import { isJsonContentType } from '../webhook/json.ts';
import type { ParsedEvent } from './parse.ts';
import { sliceMember } from './slices.ts';

const base64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;
const int32_max = 2_147_483_647;

/** A context attribute in its canonical string form; null when it is absent. */
function attributeText(path: string, name: string, value: unknown): string | null {
  if (value === null) return null;
  if (typeof value === 'string') return value;
  if (typeof value === 'boolean') return String(value);
  if (typeof value === 'number' && Number.isInteger(value) && Math.abs(value) <= int32_max) {
    return String(value);
  }
  throw fieldError(
    path + name,
    'invalid_attribute',
    `${path + name} must be a string, a boolean or a 32-bit integer; other content belongs in data.`,
  );
}

function readBody(
  event: Readonly<Record<string, unknown>>,
  json: Buffer,
  path: string,
  content_type: string | undefined,
): Buffer | null {
  const { data, data_base64: encoded } = event;
  const hasData = data !== undefined && data !== null;
  if (encoded === undefined || encoded === null) {
    if (!hasData) return null;
    if (typeof data === 'string' && !isJsonContentType(content_type)) return Buffer.from(data);
    return Buffer.from(sliceMember(json, 'data') as Buffer);
  }
  const field = `${path}data_base64`;
  if (hasData) {
    throw fieldError(field, 'ambiguous_data', `Send either data or ${field}, not both.`);
  }
  if (typeof encoded !== 'string' || !base64.test(encoded)) {
    throw fieldError(field, 'invalid_base64', `${field} must be a string in padded base64.`);
  }
  return Buffer.from(encoded, 'base64');
}

/**
 * Reads one event in JSON form. `json` is the text `event` was parsed from, so that `data` keeps
 * its bytes; `path` leads field names in a batch.
 */
export function readStructured(event: unknown, json: Buffer, path: string): ParsedEvent {
  if (typeof event !== 'object' || event === null || Array.isArray(event)) {
    throw new HubError(
      'malformed_request',
      `${path || 'The body '}must be a CloudEvent as a JSON object.`,
    );
  }
  const members = event as Readonly<Record<string, unknown>>;
  const attributes: Record<string, string> = {};
  for (const name of Object.keys(members)) {
    if (name === 'data' || name === 'data_base64') continue;
    if (!/^[a-z0-9]+$/.test(name)) {
      throw fieldError(
        path + name,
        'invalid_attribute_name',
        `${path + name} is no CloudEvents attribute; names are lower-case letters and digits, and other content belongs in data.`,
      );
    }
    const text = attributeText(path, name, members[name]);
    if (text !== null) attributes[name] = text;
  }
  const body = readBody(members, json, path, attributes['datacontenttype']);
  const inline = body !== null && (members['data_base64'] ?? null) === null;
  if (inline && attributes['datacontenttype'] === undefined) {
    attributes['datacontenttype'] = 'application/json';
  }
  return { attributes, body };
}
