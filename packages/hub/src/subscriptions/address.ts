import type { DestinationKind, WebhookDestination } from './types.ts';

/**
 * What makes two destinations one lane: the address as it goes over the wire. Scheme and host in lower
 * case, the scheme's own port left out, path and query kept, no fragment.
 * @throws TypeError when the URL cannot be parsed; check it first.
 */
export function canonicalAddress(kind: DestinationKind, destination: WebhookDestination): string {
  switch (kind) {
    case 'webhook':
      return canonicalUrl(destination.url);
    default:
      return kind satisfies never;
  }
}

function canonicalUrl(text: string): string {
  // The WHATWG parser lower-cases scheme and host, drops the default port and resolves dots in the path.
  const url = new URL(text);
  // The empty query stays distinct from none only in the text, not in what `search` gives; both send the same.
  return `${url.protocol}//${url.host.replace(/\.(?=:|$)/, '')}${url.pathname}${url.search}`;
}
