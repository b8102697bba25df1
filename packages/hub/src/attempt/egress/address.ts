import ipaddr from 'ipaddr.js';

/**
 * - `public`: unicast and routed on the internet; always allowed.
 * - `private`: loopback, private, unique local, shared (carrier) space; only where an operator allows it.
 * - `metadata`: where clouds keep their credentials; never.
 * - `reserved`: nothing an HTTP receiver can have (multicast, unspecified, documentation …); never.
 */
export type AddressClass = 'public' | 'private' | 'metadata' | 'reserved';

/** Metadata services that do not lie in 169.254.0.0/16, in the form `ipaddr.process().toString()` gives. */
const metadataAddresses: ReadonlySet<string> = new Set([
  '100.100.100.200', // Alibaba
  '168.63.129.16', // Azure's wire server: looks public, answers only from inside
  '192.0.0.192', // Oracle
  'fd00:ec2::254', // AWS instance metadata
  'fd00:ec2::23', // AWS pod identity
  'fd20:ce::254', // Google
]);

const privateRanges: ReadonlySet<string> = new Set([
  'loopback',
  'private',
  'uniqueLocal',
  'carrierGradeNat',
  'linkLocal',
  'deprecatedSiteLocal',
]);

const severity: Record<AddressClass, number> = { public: 0, private: 1, reserved: 2, metadata: 3 };

/**
 * Says what kind of address this is. IPv6 forms that carry an IPv4 address (mapped, translated,
 * NAT64, 6to4, Teredo, ISATAP) are decoded and judged by what they carry, since that is where
 * the packets go. Text that is no address at all is `reserved`.
 */
export function classifyAddress(text: string): AddressClass {
  const isIpv6 = text.includes(':');
  const canonical = isIpv6 ? canonicalIpv6(text) : text;
  if (canonical === null || !ipaddr.isValid(canonical)) return 'reserved';
  const address = ipaddr.process(canonical);
  return address.kind() === 'ipv4'
    ? classifyIpv4(address as ipaddr.IPv4)
    : classifyIpv6(address as ipaddr.IPv6);
}

/**
 * The spelling the operating system reports, without a dotted part: ipaddr.js reads `::8.8.8.8` as a
 * mapped address, which it is not. Null when the text is no IPv6 address or has a zone.
 */
export function canonicalIpv6(text: string): string | null {
  return URL.parse(`http://[${text}]`)?.hostname.slice(1, -1) ?? null;
}

function classifyIpv4(address: ipaddr.IPv4): AddressClass {
  if (metadataAddresses.has(address.toString())) return 'metadata';
  const range = address.range();
  // No receiver lives on IPv4 link-local, and several clouds keep more than one metadata address there.
  if (range === 'linkLocal') return 'metadata';
  if (range === 'unicast') return 'public';
  return privateRanges.has(range) ? 'private' : 'reserved';
}

function classifyIpv6(address: ipaddr.IPv6): AddressClass {
  if (metadataAddresses.has(address.toString())) return 'metadata';
  const bytes = address.toByteArray();
  const range = address.range() as string;
  switch (range) {
    case 'rfc6145':
      return classifyEmbedded(bytes, [[12, 13, 14, 15]]);
    case 'rfc6052':
      return classifyNat64(bytes);
    case '6to4':
      return classifyEmbedded(bytes, [[2, 3, 4, 5]]);
    case 'teredo':
      return worst(
        classifyEmbedded(bytes, [[4, 5, 6, 7]]), // the relay that gets the packets first
        classifyEmbedded(
          bytes.map((byte) => byte ^ 0xff), // the client behind it is stored inverted
          [[12, 13, 14, 15]],
        ),
      );
    case 'unicast': {
      // Global unicast is 2000::/3; the rest, such as IPv4-compatible ::a.b.c.d, is routed nowhere.
      const outer: AddressClass = (bytes[0] ?? 0) >> 5 === 1 ? 'public' : 'reserved';
      return isIsatap(bytes) ? worst(outer, classifyEmbedded(bytes, [[12, 13, 14, 15]])) : outer;
    }
    default:
      return isIsatap(bytes) && classifyEmbedded(bytes, [[12, 13, 14, 15]]) === 'metadata'
        ? 'metadata'
        : privateRanges.has(range)
          ? 'private'
          : 'reserved';
  }
}

/** Where RFC 6052 puts the IPv4 address for prefixes of 48, 56, 64 and 96 bits; byte 8 is always zero. */
const nat64Layouts = [
  [6, 7, 9, 10],
  [7, 9, 10, 11],
  [9, 10, 11, 12],
] as const;

function classifyNat64(bytes: readonly number[]): AddressClass {
  const isWellKnownPrefix = bytes[4] === 0 && bytes[5] === 0;
  if (isWellKnownPrefix) return classifyEmbedded(bytes, [[12, 13, 14, 15]]);
  // 64:ff9b:1::/48 is for local use with a prefix length only its operator knows: the layouts
  // this address can have (zero after the IPv4 address) are all judged.
  const candidates: (readonly number[])[] = nat64Layouts.filter((layout) => {
    const end = layout[3] + 1;
    return bytes[8] === 0 && bytes.slice(end).every((byte) => byte === 0);
  });
  if (bytes.slice(12).some((byte) => byte !== 0)) candidates.push([12, 13, 14, 15]);
  return candidates.length === 0 ? 'reserved' : classifyEmbedded(bytes, candidates);
}

function classifyEmbedded(
  bytes: readonly number[],
  positions: readonly (readonly number[])[],
): AddressClass {
  let result: AddressClass = 'public';
  for (const layout of positions) {
    const octets = layout.map((index) => bytes[index] ?? 0);
    result = worst(result, classifyIpv4(new ipaddr.IPv4(octets)));
  }
  return result;
}

/** RFC 5214: interface identifier 0000:5efe or 0200:5efe, then the IPv4 address. */
function isIsatap(bytes: readonly number[]): boolean {
  const isMarked = bytes[10] === 0x5e && bytes[11] === 0xfe && bytes[9] === 0;
  return isMarked && (bytes[8] === 0 || bytes[8] === 2);
}

function worst(left: AddressClass, right: AddressClass): AddressClass {
  return severity[left] >= severity[right] ? left : right;
}
