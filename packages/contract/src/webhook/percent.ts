const plain = /^[!#$&-~]*$/;

/**
 * Encodes a context attribute for an HTTP header as the CloudEvents HTTP binding says: space,
 * `"`, `%` and everything outside printable ASCII become percent-encoded UTF-8.
 */
export function encodeHeaderValue(value: string): string {
  if (plain.test(value)) return value;
  let encoded = '';
  for (const byte of Buffer.from(value)) {
    const keep = byte > 0x20 && byte < 0x7f && byte !== 0x22 && byte !== 0x25;
    encoded += keep
      ? String.fromCharCode(byte)
      : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return encoded;
}

/**
 * Decodes a context attribute from an HTTP header as Node presents it (Latin-1): an optional
 * quoted string, percent-encoded bytes, and bare UTF-8. Null when the bytes are not valid UTF-8.
 */
export function decodeHeaderValue(value: string): string | null {
  let text = value;
  if (text.length >= 2 && text.startsWith('"') && text.endsWith('"')) {
    text = text.slice(1, -1).replace(/\\(.)/g, '$1');
  }
  if (plain.test(text)) return text;
  const bytes = Buffer.alloc(text.length);
  let length = 0;
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    const digits = text.slice(index + 1, index + 3);
    if (code === 0x25 && /^[0-9A-Fa-f]{2}$/.test(digits)) {
      bytes[length++] = Number.parseInt(digits, 16);
      index += 2;
    } else bytes[length++] = code & 0xff;
  }
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(
      bytes.subarray(0, length),
    );
  } catch {
    return null;
  }
}
