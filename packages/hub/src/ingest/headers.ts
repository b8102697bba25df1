import { isUtf8 } from 'node:buffer';
import type { RawHeader } from '../stream/index.ts';

function field(name: 'key' | 'value', bytes: Buffer): Record<string, string> {
  return isUtf8(bytes)
    ? { [name]: bytes.toString('utf8') }
    : { [`${name}_base64`]: bytes.toString('base64') };
}

/**
 * The headers of a quarantined record as JSON text: an array in order, repeats kept, of
 * `{ key, value }`; what is not UTF-8 stands as `key_base64` or `value_base64` instead.
 */
export function headersJson(headers: readonly RawHeader[]): string {
  return JSON.stringify(
    headers.map(([key, value]) => ({ ...field('key', key), ...field('value', value) })),
  );
}
