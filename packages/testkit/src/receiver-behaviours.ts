import type { IncomingMessage, ServerResponse } from 'node:http';

/** What a receiver does with one request. Raw behaviours write to `request.socket` and never touch `response`. */
export type Behaviour = (request: IncomingMessage, response: ServerResponse, body: Buffer) => void;

interface OkOptions {
  readonly delay_ms?: number;
  readonly body?: string;
}

/** Answers 200, after `delay_ms` when given. */
export function ok(options: OkOptions = {}): Behaviour {
  return status(200, options);
}

interface StatusOptions extends OkOptions {
  readonly headers?: Readonly<Record<string, string>>;
}

/** Answers with this status. */
export function status(code: number, options: StatusOptions = {}): Behaviour {
  return (_request, response) => {
    const answer = () => {
      response.writeHead(code, options.headers);
      response.end(options.body ?? '');
    };
    if (options.delay_ms === undefined) answer();
    else setTimeout(answer, options.delay_ms).unref();
  };
}

/** The first `failures` requests get `failing` (503), all later ones `after` (200). */
export function flaky(failures: number, failing = status(503), after = ok()): Behaviour {
  let seen = 0;
  return (request, response, body) => {
    seen += 1;
    (seen <= failures ? failing : after)(request, response, body);
  };
}

/** Reads the request and never answers. */
export function hang(): Behaviour {
  return () => {};
}

/** Drops the connection with a TCP reset. */
export function reset(): Behaviour {
  return (request) => request.socket.resetAndDestroy();
}

/** Closes the connection in an orderly way, without an answer. */
export function hangUp(): Behaviour {
  return (request) => request.socket.destroy();
}

/** Ends its sending side without an answer, and keeps the connection open. */
export function halfOpen(): Behaviour {
  return (request) => request.socket.end();
}

/** Sends one header each `interval_ms` and never finishes them. */
export function slowHeaders(interval_ms = 20): Behaviour {
  return trickle('HTTP/1.1 200 OK\r\n', 'x-wait: 1\r\n', interval_ms);
}

/** Sends an informational answer each `interval_ms` and never the real one. */
export function endlessInformation(interval_ms = 20): Behaviour {
  return trickle('', 'HTTP/1.1 102 Processing\r\n\r\n', interval_ms);
}

/** Answers 200 at once, then one byte of an endless body each `interval_ms`. */
export function slowBody(interval_ms = 20): Behaviour {
  return trickle('HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n', '.', interval_ms);
}

/** Answers with an endless body as fast as the connection takes it. */
export function endlessBody(code = 200): Behaviour {
  const chunk = Buffer.alloc(16 * 1024, 'x');
  return (_request, response) => {
    response.writeHead(code);
    const pump = () => {
      while (!response.destroyed) {
        if (!response.write(chunk)) {
          response.once('drain', pump);
          return;
        }
      }
    };
    pump();
  };
}

/** Announces more than it sends, then closes. */
export function cutBody(code = 200): Behaviour {
  return raw(`HTTP/1.1 ${code} OK\r\ncontent-length: 100\r\n\r\nhalf`, true);
}

/** Answers with something that is not HTTP. */
export function garbage(): Behaviour {
  return raw('SSH-2.0-OpenSSH_9.2p1\r\n\u0000\u0001\u0002\r\n\r\n', false);
}

/** Answers with headers of this many bytes. */
export function hugeHeaders(bytes: number): Behaviour {
  return raw(`HTTP/1.1 200 OK\r\nx-large: ${'h'.repeat(bytes)}\r\n\r\n`, false);
}

/** Sends exactly these characters (Latin-1), and closes afterwards when asked to. */
export function raw(text: string, closes: boolean): Behaviour {
  return (request) => {
    if (closes) request.socket.end(text, 'latin1');
    else request.socket.write(text, 'latin1');
  };
}

/** Returns the challenge of a verification request as JSON, or as plain text. */
export function echoChallenge(form: 'json' | 'plain' = 'json'): Behaviour {
  return (_request, response, body) => {
    const { challenge } = JSON.parse(body.toString()) as { challenge: string };
    response.writeHead(200);
    response.end(form === 'json' ? JSON.stringify({ challenge }) : challenge);
  };
}

/** Answers OPTIONS of the CloudEvents webhook handshake. */
export function allowOrigin(origin = '*', rate?: string): Behaviour {
  return (_request, response) => {
    response.setHeader('webhook-allowed-origin', origin);
    if (rate !== undefined) response.setHeader('webhook-allowed-rate', rate);
    response.writeHead(200);
    response.end();
  };
}

function trickle(start: string, piece: string, interval_ms: number): Behaviour {
  return (request) => {
    const { socket } = request;
    socket.write(start);
    const timer = setInterval(() => socket.write(piece), interval_ms).unref();
    socket.once('close', () => clearInterval(timer));
  };
}
