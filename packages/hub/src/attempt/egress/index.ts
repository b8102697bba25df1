import type { Clock } from '../../base/index.ts';
import { AttemptError } from '../errors.ts';
import type { ConnectionLimits } from './connections.ts';
import { createConnections } from './connections.ts';
import { createTlsContext } from './connector.ts';
import type { ExchangeRequest, ExchangeResult } from './exchange.ts';
import { runExchange } from './exchange.ts';
import type { Resolver } from './resolve.ts';
import { createDnsResolver, shareLookups, systemResolver } from './resolve.ts';
import type { EgressPolicy, UrlVerdict } from './url.ts';
import { checkUrl } from './url.ts';

export type { ConnectionLimits } from './connections.ts';
export type { ExchangeRequest, ExchangeResult } from './exchange.ts';
export type { Resolver } from './resolve.ts';
export type { EgressPolicy, EgressTarget, UrlVerdict } from './url.ts';

export interface EgressOptions extends EgressPolicy {
  readonly clock: Clock;
  /** How names become addresses; by default DNS, and the machine's own way when private targets are allowed. */
  readonly resolver?: Resolver;
  /** Certificate authorities (PEM) trusted in addition to the usual ones. */
  readonly extra_authorities?: readonly string[];
  readonly limits?: Partial<ConnectionLimits>;
}

/** The one guard for every outbound HTTP call of the hub. */
export interface Egress {
  /** The rules that need no network; an accepted URL comes back cut into what `exchange` needs. Cheap to repeat. */
  checkUrl(url: string): UrlVerdict;
  /** One request, one result; never rejects for what a receiver, DNS or the network does. */
  exchange(request: ExchangeRequest): Promise<ExchangeResult>;
  stats(): { readonly origins: number; readonly in_flight: number; readonly idle: number };
  /** Closes idle connections at once and waits for requests in flight. */
  close(): Promise<void>;
}

/** Verdicts remembered by URL, so that a lane's URL is parsed once and not per attempt. */
const VERDICTS_MAX = 4096;

export function createEgress(options: EgressOptions): Egress {
  const { clock } = options;
  const resolver = options.resolver ?? defaultResolver(options);
  const parts = {
    policy: options,
    resolver: shareLookups(resolver),
    clock,
    context: createTlsContext(options.extra_authorities ?? []),
  };
  const connections = createConnections(clock, parts, options.limits);
  const verdicts = new Map<string, UrlVerdict>();
  let isClosed = false;

  return {
    checkUrl(url) {
      let verdict = verdicts.get(url);
      if (verdict === undefined) {
        verdict = checkUrl(url, options);
        if (verdicts.size >= VERDICTS_MAX) verdicts.clear();
        verdicts.set(url, verdict);
      }
      return verdict;
    },
    exchange: (request) =>
      isClosed ? Promise.resolve(closedResult()) : runExchange(connections, request, clock),
    stats: () => connections.stats(),
    close() {
      isClosed = true;
      return connections.close();
    },
  };
}

/** Names of the inside are often in the hosts file; names of the internet are only in DNS. */
function defaultResolver(policy: EgressPolicy): Resolver {
  return policy.allow_private ? systemResolver : createDnsResolver();
}

function closedResult(): ExchangeResult {
  return {
    answered: false,
    error: new AttemptError('aborted', 'The hub is shutting down.'),
    status: null,
    timings: {
      dns_ms: null,
      connect_ms: null,
      tls_ms: null,
      first_byte_ms: null,
      total_ms: 0,
    },
  };
}
