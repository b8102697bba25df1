import { AttemptError } from '../errors.ts';

/** Errors of this machine, not of the receiver: no file handles, ports or memory left. */
const ownSystemErrors: ReadonlySet<string> = new Set([
  'EMFILE',
  'ENFILE',
  'ENOBUFS',
  'ENOMEM',
  'EADDRNOTAVAIL',
  'EACCES',
  'EPERM',
]);

/** Turns what `net.connect` reported into an attempt error. `where` is `host:port`. */
export function connectError(error: unknown, where: string): AttemptError {
  if (error instanceof AttemptError) return error;
  const code = errorCode(error);
  if (ownSystemErrors.has(code)) {
    return new AttemptError('hub_error', `The hub could not open a connection (${code}).`, error);
  }
  if (code === 'ECONNREFUSED') {
    return new AttemptError('connect_refused', `Nothing listens at ${where}.`, error);
  }
  if (code === 'ECONNRESET' || code === 'EPIPE') {
    return new AttemptError('connection_reset', `${where} closed the connection at once.`, error);
  }
  if (code === 'ETIMEDOUT') {
    return new AttemptError('timeout', `No connection to ${where}: no answer in time.`, error);
  }
  return new AttemptError('connect_failed', `No connection to ${where} (${code}).`, error);
}

/** Turns a failed TLS handshake into an attempt error that says which kind of fault it is. */
export function tlsError(error: unknown, hostname: string): AttemptError {
  if (error instanceof AttemptError) return error;
  return new AttemptError('tls_failed', tlsMessage(error, hostname), error);
}

function tlsMessage(error: unknown, hostname: string): string {
  const code = errorCode(error);
  switch (code) {
    case 'CERT_HAS_EXPIRED':
      return `The TLS certificate of ${hostname} has expired.`;
    case 'CERT_NOT_YET_VALID':
      return `The TLS certificate of ${hostname} is not valid yet.`;
    case 'ERR_TLS_CERT_ALTNAME_INVALID':
      return `The TLS certificate is not made for ${hostname}.`;
    case 'DEPTH_ZERO_SELF_SIGNED_CERT':
    case 'SELF_SIGNED_CERT_IN_CHAIN':
      return `The TLS certificate of ${hostname} is self-signed or from an unknown authority.`;
    case 'UNABLE_TO_VERIFY_LEAF_SIGNATURE':
    case 'UNABLE_TO_GET_ISSUER_CERT':
    case 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY':
      return `${hostname} sends an incomplete certificate chain, or one from an unknown authority.`;
    case 'CERT_REVOKED':
      return `The TLS certificate of ${hostname} has been revoked.`;
    case 'ECONNRESET':
    case 'EPIPE':
      return `${hostname} closed the connection during the TLS handshake.`;
    case 'ERR_SSL_UNSUPPORTED_PROTOCOL':
    case 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION':
      return `${hostname} does not speak TLS 1.2 or newer.`;
    case 'ERR_SSL_WRONG_VERSION_NUMBER':
    case 'ERR_SSL_PACKET_LENGTH_TOO_LONG':
      return `What answers at ${hostname} does not speak TLS.`;
    default:
      return `The TLS handshake with ${hostname} failed (${code}).`;
  }
}

/** How far a request had come when it failed. */
export type ExchangePhase = 'unsent' | 'sent' | 'sent_on_kept_connection' | 'answering';

/** Turns an error that undici reported for a request into an attempt error. */
export function exchangeError(error: unknown, host: string, phase: ExchangePhase): AttemptError {
  if (error instanceof AttemptError) return error;
  const code = errorCode(error);
  switch (code) {
    case 'UND_ERR_HEADERS_OVERFLOW':
      return new AttemptError('bad_response', `The headers of ${host} are too large.`, error);
    case 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH': {
      const message = `The body of ${host} has another length than announced.`;
      return new AttemptError('bad_response', message, error);
    }
    case 'UND_ERR_DESTROYED':
    case 'UND_ERR_CLOSED':
      return new AttemptError('aborted', 'The hub closed the connection itself.', error);
    case 'ECONNRESET':
    case 'EPIPE':
    case 'ETIMEDOUT':
    case 'ECONNABORTED':
      return resetError(error, host, phase);
    case 'UND_ERR_SOCKET':
      if (!isProtocolError(error)) return resetError(error, host, phase);
      break;
    default:
      if (phase !== 'unsent') break;
      // Nothing left this machine: undici refused what it was told to send.
      return new AttemptError('hub_error', `The hub could not send the request (${code}).`, error);
  }
  return new AttemptError('bad_response', `${host} did not answer with valid HTTP.`, error);
}

function resetError(cause: unknown, host: string, phase: ExchangePhase): AttemptError {
  const message =
    phase === 'sent_on_kept_connection'
      ? `${host} closed the connection, kept from earlier requests, instead of answering.`
      : `${host} closed the connection before the answer was complete.`;
  return new AttemptError('connection_reset', message, cause);
}

function isProtocolError(error: unknown): boolean {
  const { message } = error as Error;
  return message === 'bad response' || message === 'bad upgrade';
}

function errorCode(error: unknown): string {
  return (
    (error as NodeJS.ErrnoException | null)?.code ?? (error as Error | null)?.name ?? 'unknown'
  );
}
