import { isIP } from 'node:net';
import { classifyAddress } from './address.ts';

export interface EgressPolicy {
  /** Loopback and private targets are allowed. Refused in production by the settings. */
  readonly allow_private: boolean;
  /** Plain http is allowed. */
  readonly allow_http: boolean;
}

/** A URL that passed the rules, cut into the pieces a request needs, so that nothing is parsed per request. */
export interface EgressTarget {
  /** `https://host:port`, the key of the connection pool. */
  readonly origin: string;
  /** Path and query, as sent. */
  readonly path: string;
  /** Name or address without brackets. */
  readonly hostname: string;
}

export type UrlVerdict =
  | { readonly ok: true; readonly target: EgressTarget }
  | { readonly ok: false; readonly message: string };

const URL_LENGTH_MAX = 2048;
const HOSTNAME_LENGTH_MAX = 253;

/** Names that mean this machine or the network around it, by their last labels. */
const localSuffixes = [
  'localhost',
  'local',
  'localdomain',
  'internal',
  'cluster.local',
  'svc',
  'lan',
  'home',
  'corp',
  'intranet',
  'private',
  'arpa',
  'onion',
] as const;

const metadataNames: ReadonlySet<string> = new Set([
  'metadata',
  'metadata.google.internal',
  'metadata.goog',
  'metadata.azure.internal',
  'metadata.azure.com',
  'metadata.tencentyun.com',
  'metadata.platformequinix.com',
  'metadata.packet.net',
  'instance-data',
  'instance-data.ec2.internal',
]);

/**
 * The rules for a URL before any name is resolved. Pure: the answer depends on the arguments only.
 * Addresses written as numbers (`0x7f.1`, `2130706433`, `①②⑦.0.0.1`) reach the address rules in
 * their dotted form, because the WHATWG parser rewrites them.
 */
export function checkUrl(text: string, policy: EgressPolicy): UrlVerdict {
  if (text.length > URL_LENGTH_MAX)
    return refused(`The URL is longer than ${URL_LENGTH_MAX} characters.`);
  // The parser drops or rewrites these silently, so what an owner reads would not be what is called.
  if (hasUnsafeCharacters(text)) {
    return refused('The URL contains a space, a control character or a backslash.');
  }
  // The parser would take `https:///path` and `https:name` for hosts.
  if (/^https?:/i.test(text) && !/^https?:\/\/[^/?#]/i.test(text)) {
    return refused('The URL has no usable host name.');
  }
  const url = URL.parse(text);
  if (url === null) return refused('The URL cannot be parsed.');
  return (
    checkScheme(url, policy) ??
    checkParts(url) ??
    checkHost(bareHostname(url), policy) ?? {
      ok: true,
      target: { origin: url.origin, path: url.pathname + url.search, hostname: bareHostname(url) },
    }
  );
}

function hasUnsafeCharacters(text: string): boolean {
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if (code <= 0x20 || code === 0x7f || code === 0x5c) return true;
  }
  return false;
}

function checkScheme(url: URL, policy: EgressPolicy): UrlVerdict | null {
  if (url.protocol === 'https:') return null;
  if (url.protocol !== 'http:') return refused('The URL must start with https://.');
  return policy.allow_http
    ? null
    : refused('The URL must start with https://; plain http is not allowed here.');
}

function checkParts(url: URL): UrlVerdict | null {
  if (url.username !== '' || url.password !== '') {
    return refused('The URL must not contain a user name or password; use a header instead.');
  }
  if (url.hash !== '' || url.href.endsWith('#')) {
    return refused('The URL must not contain a fragment (#); it would never be sent.');
  }
  // Ports below 1024 belong to other protocols, which must not be spoken to by accident.
  const port = url.port === '' ? null : Number(url.port);
  if (port !== null && port < 1024 && port !== 80 && port !== 443) {
    return refused(`Port ${port} is not allowed; use 80, 443 or a port from 1024 on.`);
  }
  return null;
}

/** Rules for a host, as a name or as an address without brackets; null = nothing against it. */
export function checkHost(hostname: string, policy: EgressPolicy): UrlVerdict | null {
  if (isIP(hostname) !== 0) {
    const problem = addressProblem(hostname, policy);
    return problem === null ? null : refused(`${hostname} is ${problem}.`);
  }
  const name = hostname.toLowerCase().replace(/\.$/, '');
  if (name === '' || name.length > HOSTNAME_LENGTH_MAX || !isDomainName(name)) {
    return refused('The URL has no usable host name.');
  }
  if (metadataNames.has(name)) return refused(`${name} is a cloud metadata service.`);
  if (policy.allow_private) return null;
  if (!name.includes('.')) return refused(`${name} is a local name; use a public host name.`);
  const suffix = localSuffixes.find((entry) => name.endsWith(`.${entry}`));
  return suffix === undefined ? null : refused(`Names under .${suffix} are local to a network.`);
}

function isDomainName(name: string): boolean {
  return name.split('.').every((label) => /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/.test(label));
}

/** Why this address may not be called, as the end of a sentence ("… is a private address"); null = it may. */
export function addressProblem(address: string, policy: EgressPolicy): string | null {
  const kind = classifyAddress(address);
  switch (kind) {
    case 'public':
      return null;
    case 'private':
      return policy.allow_private ? null : 'a private address';
    case 'metadata':
      return 'the address of a cloud metadata service';
    case 'reserved':
      return 'a reserved address';
    default:
      return kind satisfies never;
  }
}

function bareHostname(url: URL): string {
  const { hostname } = url;
  return hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
}

function refused(message: string): UrlVerdict {
  return { ok: false, message };
}
