import type { AttemptResult } from './port.ts';

interface AttemptErrorEntry {
  /** Whose failure it is: the receiver's counts for retries, breaker and auto-disable, the hub's does not. */
  readonly blame: NonNullable<AttemptResult['blame']>;
  /** One sentence for documentation; the message of a single attempt says more. */
  readonly meaning: string;
}

/** Every code an attempt can end with, apart from success. */
export const attemptErrors = {
  timeout: {
    blame: 'receiver',
    meaning: 'The whole exchange (connect, headers, body) took longer than the time allowed.',
  },
  dns_failed: { blame: 'receiver', meaning: 'The host name could not be resolved.' },
  connect_refused: { blame: 'receiver', meaning: 'Nothing listens at the address and port.' },
  connect_failed: { blame: 'receiver', meaning: 'No TCP connection could be made.' },
  tls_failed: {
    blame: 'receiver',
    meaning: 'The TLS handshake failed: certificate, name, date or protocol.',
  },
  connection_reset: {
    blame: 'receiver',
    meaning: 'The connection broke before the answer was complete.',
  },
  bad_response: { blame: 'receiver', meaning: 'What came back is not a valid HTTP answer.' },
  egress_refused: {
    blame: 'receiver',
    meaning: 'The URL, or an address its name resolves to, is one the hub never calls.',
  },
  redirect: { blame: 'receiver', meaning: 'The answer is a redirect; redirects are not followed.' },
  status: { blame: 'receiver', meaning: 'The answer has a status outside 2xx.' },
  gone: {
    blame: 'receiver',
    meaning: 'The receiver answered 410: it wants no more events from this subscription.',
  },
  aborted: {
    blame: 'hub',
    meaning: 'The hub gave the attempt up, for example while shutting down.',
  },
  hub_error: {
    blame: 'hub',
    meaning: 'A fault of the hub itself; nothing the receiver can change.',
  },
} as const satisfies Record<string, AttemptErrorEntry>;

export type AttemptErrorCode = keyof typeof attemptErrors;

/** A failed outbound call; the message is a sentence an owner can act on. */
export class AttemptError extends Error {
  readonly code: AttemptErrorCode;

  constructor(code: AttemptErrorCode, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'AttemptError';
    this.code = code;
  }
}
