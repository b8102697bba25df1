import type { Socket } from 'node:net';
import { isIP } from 'node:net';
import type { SecureContext, TLSSocket } from 'node:tls';
import { connect as connectTls, createSecureContext, getCACertificates } from 'node:tls';
import type { buildConnector } from 'undici';
import type { Clock } from '../../base/index.ts';
import { AttemptError } from '../errors.ts';
import { canonicalIpv6, classifyAddress } from './address.ts';
import { dial } from './dial.ts';
import { connectError, tlsError } from './failure.ts';
import type { Resolver } from './resolve.ts';
import { resolveVetted } from './resolve.ts';
import type { EgressPolicy } from './url.ts';

/** Resolving, connecting and the TLS handshake together; a request has its own, usually longer, limit. */
export const CONNECT_MS = 10_000;

/** How a new connection came to be. */
export interface DialReport {
  /** Null for an address literal. */
  dns_ms: number | null;
  connect_ms: number | null;
  /** Null for plain http. */
  tls_ms: number | null;
  peer_is_private: boolean;
}

export interface ConnectorParts {
  readonly policy: EgressPolicy;
  readonly resolver: Resolver;
  readonly clock: Clock;
  readonly context: SecureContext;
}

/** TLS settings shared by all connections; building them per connection would parse every root certificate again. */
export function createTlsContext(extraAuthorities: readonly string[]): SecureContext {
  return createSecureContext({
    minVersion: 'TLSv1.2',
    ...(extraAuthorities.length > 0 && {
      ca: [...getCACertificates('default'), ...extraAuthorities],
    }),
  });
}

/** What aborting a connection attempt looks like from inside. */
const cancelled = new AttemptError('aborted', 'Nobody waits for this connection any more.');

/**
 * The only place of the hub that opens outbound HTTP connections. Resolves once, vets every answer,
 * and connects to exactly those addresses; the original name is used for SNI, certificate and Host.
 * @param cancel aborts connection attempts nobody waits for
 * @param onConnected called just before undici gets the socket and writes the request that waits for it
 */
export function createConnector(
  parts: ConnectorParts,
  cancel: AbortSignal,
  onConnected: (report: DialReport) => void,
): buildConnector.connector {
  return (options, callback) => {
    const report: DialReport = {
      dns_ms: null,
      connect_ms: null,
      tls_ms: null,
      peer_is_private: false,
    };
    openConnection(parts, options, cancel, report).then(
      (socket) => {
        onConnected(report);
        callback(null, socket);
      },
      (error: Error) => callback(error, null),
    );
  };
}

async function openConnection(
  parts: ConnectorParts,
  options: buildConnector.Options,
  cancel: AbortSignal,
  report: DialReport,
): Promise<Socket> {
  const { hostname } = options;
  const isSecure = options.protocol === 'https:';
  const port = options.port === '' ? (isSecure ? 443 : 80) : Number(options.port);
  const limit = new AbortController();
  const timer = setTimeout(() => {
    const message = `No connection to ${hostname}:${port} within ${CONNECT_MS / 1000} s.`;
    limit.abort(new AttemptError('timeout', message));
  }, CONNECT_MS);
  const onCancel = () => limit.abort(cancelled);
  cancel.addEventListener('abort', onCancel, { once: true });
  try {
    const started_ms = parts.clock.monotonic_ms();
    const addresses = await abortable(
      resolveVetted(hostname, parts.policy, parts.resolver),
      limit.signal,
    );
    const resolved_ms = parts.clock.monotonic_ms();
    if (isIP(hostname) === 0) report.dns_ms = resolved_ms - started_ms;

    const socket = await dial(addresses, port, limit.signal).catch((error: unknown) => {
      throw connectError(error, `${hostname}:${port}`);
    });
    const connected_ms = parts.clock.monotonic_ms();
    report.connect_ms = connected_ms - resolved_ms;
    report.peer_is_private = vetPeer(socket, addresses, hostname);
    if (!isSecure) return socket;

    const secure = await secureSocket(socket, hostname, parts.context, limit.signal);
    report.tls_ms = parts.clock.monotonic_ms() - connected_ms;
    return secure;
  } finally {
    clearTimeout(timer);
    cancel.removeEventListener('abort', onCancel);
  }
}

/** Last look before a byte is sent: the socket must be connected to one of the vetted addresses. */
function vetPeer(socket: Socket, addresses: readonly string[], hostname: string): boolean {
  const peer = socket.remoteAddress;
  if (peer === undefined) {
    const message = `${hostname} closed the connection as soon as it was made.`;
    throw new AttemptError('connection_reset', message);
  }
  if (!addresses.some((address) => isSameAddress(address, peer))) {
    socket.destroy();
    throw new AttemptError('egress_refused', `${hostname} was reached at an unvetted address.`);
  }
  return classifyAddress(peer) !== 'public';
}

function isSameAddress(vetted: string, peer: string): boolean {
  return vetted === peer || (vetted.includes(':') && canonicalIpv6(vetted) === canonicalIpv6(peer));
}

function secureSocket(
  socket: Socket,
  hostname: string,
  secureContext: SecureContext,
  signal: AbortSignal,
): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const secure = connectTls({
      socket,
      secureContext,
      host: hostname,
      // A name only: SNI has no addresses, and no trailing dot.
      ...(isIP(hostname) === 0 && { servername: hostname.replace(/\.$/, '') }),
      ALPNProtocols: ['http/1.1'],
      rejectUnauthorized: true,
    });
    const onAbort = () => fail(signal.reason);
    const onClose = () => fail(Object.assign(new Error('closed'), { code: 'ECONNRESET' }));
    const release = () => {
      signal.removeEventListener('abort', onAbort);
      secure.removeListener('error', fail);
      secure.removeListener('close', onClose);
    };
    const fail = (error: unknown) => {
      release();
      secure.on('error', () => {}); // what comes after the first error explains nothing more
      secure.destroy();
      reject(tlsError(error, hostname));
    };
    secure.once('error', fail);
    secure.once('close', onClose);
    secure.once('secureConnect', () => {
      release();
      resolve(secure);
    });
    signal.addEventListener('abort', onAbort, { once: true });
  });
}

/** Rejects with the signal's reason as soon as it aborts; the promise itself runs on unheard. */
function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason as Error);
    signal.addEventListener('abort', onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}
