import type { IncomingHttpHeaders } from 'node:http';
import type { Dispatcher } from 'undici';
import type { Clock } from '../../base/index.ts';
import { AttemptError } from '../errors.ts';
import type { AttemptTimings } from '../port.ts';
import type { Connection, Connections, Taker } from './connections.ts';
import type { DialReport } from './connector.ts';
import type { ExchangePhase } from './failure.ts';
import { exchangeError } from './failure.ts';
import type { EgressTarget } from './url.ts';

export interface ExchangeRequest {
  readonly target: EgressTarget;
  readonly method: 'GET' | 'POST' | 'OPTIONS';
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer | null;
  /** For everything: waiting for a connection, sending, headers and body of the answer. */
  readonly timeout_ms: number;
  /** No more of the answer's body is read; the connection is dropped instead. */
  readonly answer_bytes_max: number;
  readonly signal: AbortSignal;
}

/** What came of one request. Whatever a receiver does ends in one of the two. */
export type ExchangeResult =
  | {
      readonly answered: true;
      readonly status: number;
      /** Names in lower case. */
      readonly headers: IncomingHttpHeaders;
      /** The first `answer_bytes_max` bytes. */
      readonly body: Buffer;
      /** The peer's address is private: its answer is not for tenants. */
      readonly peer_is_private: boolean;
      readonly timings: AttemptTimings;
    }
  | {
      readonly answered: false;
      readonly error: AttemptError;
      /** Known when the headers arrived but the body did not. */
      readonly status: number | null;
      readonly timings: AttemptTimings;
    };

const noBody = Buffer.alloc(0);

/** One listener per signal instead of one per request: thousands of attempts share a signal. */
const running = new WeakMap<AbortSignal, Set<Exchange>>();

/** Sends one request. Resolves exactly once, never rejects, never redirects, never retries. */
export function runExchange(
  connections: Connections,
  request: ExchangeRequest,
  clock: Clock,
): Promise<ExchangeResult> {
  return new Promise((resolve) => {
    new Exchange(connections, request, clock, resolve).run();
  });
}

/**
 * States: waiting (for a connection) → sent → answering → settled. Settling can happen in each
 * of them: by the end of the answer, an error, the timer, the signal or too large a body.
 * undici may still call back afterwards; `isSettled` makes that harmless.
 */
class Exchange implements Dispatcher.DispatchHandler, Taker {
  readonly #connections: Connections;
  readonly #request: ExchangeRequest;
  readonly #clock: Clock;
  readonly #resolve: (result: ExchangeResult) => void;
  readonly #started_ms: number;
  #timer: NodeJS.Timeout | undefined;
  #connection: Connection | null = null;
  #controller: Dispatcher.DispatchController | null = null;
  #dialled: DialReport | null = null;
  #status: number | null = null;
  #headers: IncomingHttpHeaders = {};
  #first_byte_ms: number | null = null;
  #chunks: Buffer[] | null = null;
  #received_bytes = 0;
  #isSettled = false;

  constructor(
    connections: Connections,
    request: ExchangeRequest,
    clock: Clock,
    resolve: (result: ExchangeResult) => void,
  ) {
    this.#connections = connections;
    this.#request = request;
    this.#clock = clock;
    this.#resolve = resolve;
    this.#started_ms = clock.monotonic_ms();
  }

  run(): void {
    const { target, timeout_ms, signal } = this.#request;
    if (signal.aborted) return this.abort();
    watch(signal, this);
    this.#timer = setTimeout(expire, timeout_ms, this);
    this.#connections.take(target.origin, this);
  }

  use(connection: Connection): void {
    const { target, method, headers, body } = this.#request;
    if (this.#isSettled) return this.#connections.giveBack(target.origin, connection, true);
    this.#connection = connection;
    // undici reports even its own complaints about the arguments through onResponseError.
    connection.client.dispatch({ path: target.path, method, headers, body }, this);
  }

  abort(): void {
    this.#fail(new AttemptError('aborted', 'The hub gave up this attempt, not the receiver.'));
  }

  expire(): void {
    if (this.#isSettled) return;
    this.#fail(new AttemptError('timeout', this.#timeoutMessage()));
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    if (this.#isSettled) return controller.abort(lateRequest);
    this.#controller = controller;
    const connection = this.#connection;
    if (connection === null) return;
    this.#dialled = connection.fresh;
    connection.fresh = null;
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
  ): void {
    this.#first_byte_ms ??= this.#elapsed_ms();
    if (status < 200) return;
    this.#status = status;
    this.#headers = headers;
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#isSettled) return;
    const room_bytes = this.#request.answer_bytes_max - this.#received_bytes;
    this.#received_bytes += chunk.length;
    const kept = chunk.length > room_bytes ? chunk.subarray(0, room_bytes) : chunk;
    if (this.#chunks === null) this.#chunks = [kept];
    else this.#chunks.push(kept);
    if (chunk.length <= room_bytes) return;
    // Its status is known and the rest is of no interest: as good as complete.
    this.#succeed(false);
  }

  onResponseEnd(): void {
    this.#succeed(true);
  }

  onResponseError(_controller: Dispatcher.DispatchController | null, error: Error): void {
    if (this.#isSettled) return;
    this.#fail(exchangeError(error, this.#request.target.hostname, this.#phase()));
  }

  #phase(): ExchangePhase {
    if (this.#controller === null) return 'unsent';
    if (this.#first_byte_ms !== null) return 'answering';
    return this.#dialled === null ? 'sent_on_kept_connection' : 'sent';
  }

  #succeed(isComplete: boolean): void {
    if (this.#isSettled || this.#status === null) return;
    const chunks = this.#chunks;
    const result: ExchangeResult = {
      answered: true,
      status: this.#status,
      headers: this.#headers,
      body: chunks === null ? noBody : chunks.length === 1 ? (chunks[0] ?? noBody) : concat(chunks),
      peer_is_private: this.#connection?.peer_is_private !== false,
      timings: this.#timings(),
    };
    this.#settle(result, isComplete);
  }

  #fail(error: AttemptError): void {
    if (this.#isSettled) return;
    const timings = this.#timings();
    this.#settle({ answered: false, error, status: this.#status, timings }, false);
  }

  /** @param isReusable the connection is in a known state, ready for the next request */
  #settle(result: ExchangeResult, isReusable: boolean): void {
    this.#isSettled = true;
    clearTimeout(this.#timer);
    running.get(this.#request.signal)?.delete(this);
    const { origin } = this.#request.target;
    if (this.#connection === null) this.#connections.leave(origin, this);
    else this.#connections.giveBack(origin, this.#connection, isReusable);
    this.#resolve(result);
  }

  #timings(): AttemptTimings {
    return {
      dns_ms: this.#dialled?.dns_ms ?? null,
      connect_ms: this.#dialled?.connect_ms ?? null,
      tls_ms: this.#dialled?.tls_ms ?? null,
      first_byte_ms: this.#first_byte_ms,
      total_ms: this.#elapsed_ms(),
    };
  }

  #elapsed_ms(): number {
    return this.#clock.monotonic_ms() - this.#started_ms;
  }

  #timeoutMessage(): string {
    const { hostname } = this.#request.target;
    const limit = `${this.#request.timeout_ms / 1000} s`;
    if (this.#controller === null) return `No connection to ${hostname} within ${limit}.`;
    if (this.#status === null) return `${hostname} did not answer within ${limit}.`;
    return `${hostname} answered ${this.#status}, but its body was not complete within ${limit}.`;
  }
}

const lateRequest = new AttemptError('aborted', 'The attempt had ended already.');

/**
 * Timers run before sockets are read. After a stall of this process the answer may be lying there
 * unread, so the verdict waits until the sockets had their turn.
 */
function expire(exchange: Exchange): void {
  setImmediate(() => exchange.expire());
}

function watch(signal: AbortSignal, exchange: Exchange): void {
  let set = running.get(signal);
  if (set === undefined) {
    const created = new Set<Exchange>();
    set = created;
    running.set(signal, created);
    signal.addEventListener('abort', () => created.forEach((each) => each.abort()), { once: true });
  }
  set.add(exchange);
}

function concat(chunks: readonly Buffer[]): Buffer {
  return Buffer.concat(chunks);
}
