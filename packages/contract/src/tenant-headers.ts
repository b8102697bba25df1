import { limits } from './limits.ts';

/** Names that describe the message or the connection, or that the hub itself speaks for. */
const refused = new Set([
  'connection',
  'content-encoding',
  'content-length',
  'content-type',
  'expect',
  'host',
  'http2-settings',
  'keep-alive',
  'te',
  'traceparent',
  'tracestate',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'user-agent',
]);
const refusedPrefixes = ['proxy-', 'sec-', 'webhook-', 'ce-', 'x-lerian-'];
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/;
const valueCharacters = /^[\t -~]*$/;

export interface HeaderFault {
  readonly field: string;
  readonly message: string;
}

function faultOf(name: string, value: string): string | null {
  const lower = name.toLowerCase();
  if (!token.test(name)) return 'This is not a usable HTTP header name.';
  if (refused.has(lower)) return `The hub sets or forbids ${name}; leave it out.`;
  const prefix = refusedPrefixes.find((start) => lower.startsWith(start));
  if (prefix !== undefined) return `Names that begin with ${prefix} are reserved; use another.`;
  if (value.length > limits.tenant_header_value_bytes_max) {
    return `The value has ${value.length} bytes; at most ${limits.tenant_header_value_bytes_max} are allowed.`;
  }
  if (!valueCharacters.test(value)) {
    return 'The value may hold printable ASCII only, without line breaks.';
  }
  return value === value.trim() ? null : 'The value must not begin or end with white space.';
}

/** Faults in the extra headers a tenant wants on its deliveries; empty when all may be sent. */
export function checkTenantHeaders(headers: Readonly<Record<string, string>>): HeaderFault[] {
  const faults: HeaderFault[] = [];
  const names = Object.keys(headers);
  if (names.length > limits.tenant_headers_max) {
    faults.push({
      field: 'destination.headers',
      message: `There are ${names.length} headers; at most ${limits.tenant_headers_max} are allowed.`,
    });
  }
  const seen = new Set<string>();
  for (const name of names.slice(0, limits.tenant_headers_max)) {
    const repeated = seen.has(name.toLowerCase()) ? 'The name is given twice.' : null;
    seen.add(name.toLowerCase());
    const message = repeated ?? faultOf(name, headers[name] as string);
    if (message !== null) faults.push({ field: `destination.headers.${name}`, message });
  }
  return faults;
}
