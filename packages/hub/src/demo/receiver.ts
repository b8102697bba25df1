import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { isSignatureValid } from './verify.ts';

/** One delivery as it reached a receiver. */
export interface Arrival {
  readonly event_id: string;
  readonly event_type: string;
  /** 1 = the first try. */
  readonly attempt: number;
  readonly isValid: boolean;
  readonly isAccepted: boolean;
}

export interface ReceiverOptions {
  /** True for the n-th delivery (from 1) to be answered 500. */
  readonly refuses: (n: number) => boolean;
  readonly onArrival: (arrival: Arrival) => void;
}

/** An endpoint on this machine, as a tenant would run it. */
export interface Receiver {
  readonly url: string;
  /** Signatures are checked against it; before it is known no delivery is accepted. */
  useSecret(secret: string): void;
  /** Closes the port and drops connections: the hub's next try is refused. */
  goDown(): Promise<void>;
  /** Opens the same port again. */
  comeBack(): Promise<void>;
}

const body_bytes_max = 4 * 1024 * 1024;

export async function startReceiver(options: ReceiverOptions): Promise<Receiver> {
  let secret: string | null = null;
  let deliveries = 0;

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await readBody(request);
    const { challenge } = challengeIn(body);
    if (challenge !== undefined) {
      // The hub asks whether this endpoint wants events at all: say yes by repeating the text.
      response.end(JSON.stringify({ challenge }));
      return;
    }
    const isValid = secret !== null && isSignatureValid(request.headers, body, secret);
    const isRefused = options.refuses(++deliveries);
    response.statusCode = isValid ? (isRefused ? 500 : 200) : 401;
    response.end();
    options.onArrival({
      event_id: String(request.headers['x-lerian-event-id']),
      event_type: String(request.headers['x-lerian-event-type']),
      attempt: Number(request.headers['x-lerian-attempt']),
      isValid,
      isAccepted: response.statusCode === 200,
    });
  }

  const server = createServer((request, response) => {
    answer(request, response).catch(() => response.destroy());
  });
  const listen = async (port: number) => {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    return (server.address() as AddressInfo).port;
  };
  const port = await listen(0);

  return {
    url: `http://127.0.0.1:${port}/events`,
    useSecret: (given) => {
      secret = given;
    },
    async goDown() {
      if (!server.listening) return;
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
    async comeBack() {
      if (!server.listening) await listen(port);
    },
  };
}

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > body_bytes_max) throw new Error('the body is too large');
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function challengeIn(body: Buffer): { challenge?: unknown } {
  try {
    const message = JSON.parse(body.toString()) as { type?: unknown; challenge?: unknown } | null;
    return message?.type === 'webhook.verify' ? { challenge: message.challenge } : {};
  } catch {
    return {}; // not JSON, so an ordinary delivery
  }
}
