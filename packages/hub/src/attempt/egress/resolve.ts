import { promises as dns } from 'node:dns';
import { isIP } from 'node:net';
import { AttemptError } from '../errors.ts';
import type { EgressPolicy } from './url.ts';
import { addressProblem, checkHost } from './url.ts';

/** All addresses of a name, in the order they should be tried. Rejects with the error of `node:dns`. */
export type Resolver = (hostname: string) => Promise<readonly string[]>;

const DNS_TRY_MS = 2_000;
const DNS_TRIES = 2;
/** More addresses than this are ignored, so that one answer cannot make the hub dial for ever. */
const ADDRESSES_MAX = 8;

/** As the machine resolves names: hosts file, search domains, DNS. Uses libuv's few threads. */
export const systemResolver: Resolver = async (hostname) => {
  const answers = await dns.lookup(hostname, { all: true, order: 'verbatim' });
  return answers.map((answer) => answer.address);
};

/**
 * DNS only, without threads: a name server that hangs holds up nobody else's look-up.
 * IPv4 first within each pair, because broken IPv6 routes are more common than broken IPv4 ones.
 */
export function createDnsResolver(): Resolver {
  const resolver = new dns.Resolver({ timeout: DNS_TRY_MS, tries: DNS_TRIES });
  return async (hostname) => {
    const [v4, v6] = await Promise.allSettled([
      resolver.resolve4(hostname),
      resolver.resolve6(hostname),
    ]);
    const addresses = interleave(valueOf(v4), valueOf(v6));
    if (addresses.length === 0 && v4.status === 'rejected') throw v4.reason;
    return addresses;
  };
}

/** Many connections to one name at the same moment share one look-up. Nothing is kept beyond it. */
export function shareLookups(resolver: Resolver): Resolver {
  const running = new Map<string, Promise<readonly string[]>>();
  return (hostname) => {
    const shared = running.get(hostname);
    if (shared !== undefined) return shared;
    const lookup = resolver(hostname).finally(() => running.delete(hostname));
    running.set(hostname, lookup);
    return lookup;
  };
}

function valueOf(result: PromiseSettledResult<string[]>): string[] {
  return result.status === 'fulfilled' ? result.value : [];
}

function interleave(first: readonly string[], second: readonly string[]): string[] {
  const result: string[] = [];
  for (let index = 0; index < Math.max(first.length, second.length); index += 1) {
    for (const address of [first[index], second[index]]) {
      if (address !== undefined) result.push(address);
    }
  }
  return result;
}

/**
 * Turns a host into the addresses the hub may connect to. Literals get the same rules as names.
 * One forbidden address among the answers refuses the whole name: a mixed answer is how
 * DNS rebinding looks.
 * @throws AttemptError `egress_refused`, `dns_failed`, or `hub_error` when our own resolver is unreachable
 */
export async function resolveVetted(
  hostname: string,
  policy: EgressPolicy,
  resolver: Resolver,
): Promise<readonly string[]> {
  const verdict = checkHost(hostname, policy);
  if (verdict !== null && !verdict.ok) throw new AttemptError('egress_refused', verdict.message);
  if (isIP(hostname) !== 0) return [hostname];
  const addresses = await resolve(hostname, resolver);
  for (const address of addresses) {
    const problem = addressProblem(address, policy);
    if (problem !== null) {
      throw new AttemptError('egress_refused', `${hostname} resolves to ${problem}.`);
    }
  }
  return addresses.slice(0, ADDRESSES_MAX);
}

async function resolve(hostname: string, resolver: Resolver): Promise<readonly string[]> {
  let addresses: readonly string[];
  try {
    addresses = await resolver(hostname);
  } catch (error) {
    throw dnsError(hostname, error);
  }
  if (addresses.length === 0) {
    throw new AttemptError('dns_failed', `The name ${hostname} has no address in DNS.`);
  }
  return addresses;
}

function dnsError(hostname: string, error: unknown): AttemptError {
  const code: string = (error as NodeJS.ErrnoException).code ?? 'unknown';
  switch (code) {
    case 'ENOTFOUND':
      return new AttemptError('dns_failed', `The name ${hostname} does not exist in DNS.`, error);
    case 'ENODATA':
      return new AttemptError('dns_failed', `The name ${hostname} has no address in DNS.`, error);
    case 'ETIMEOUT':
    case 'EAI_AGAIN':
      return new AttemptError('dns_failed', `DNS gave no answer for ${hostname} in time.`, error);
    case 'ECONNREFUSED': // our name server is down: every destination would fail alike
      return new AttemptError('hub_error', 'The DNS server of the hub is unreachable.', error);
    default:
      return new AttemptError('dns_failed', `DNS could not resolve ${hostname} (${code}).`, error);
  }
}
