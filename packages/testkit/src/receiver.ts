import { createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import type { Behaviour } from './receiver-behaviours.ts';
import { allowOrigin, echoChallenge, ok } from './receiver-behaviours.ts';
import type { ReceiverCertificate } from './receiver-certificate.ts';

export interface ReceivedRequest {
  readonly path: string;
  readonly method: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
  readonly received_at_ms: number;
  /** `unchecked` as long as the receiver knows no secret. */
  readonly signature: 'valid' | 'invalid' | 'unchecked';
}

export interface ReceiverOptions {
  /** Present: the receiver speaks TLS. */
  readonly tls?: ReceiverCertificate;
  readonly host?: string;
  /** How long it keeps an idle connection. */
  readonly keep_alive_ms?: number;
  /** Remember requests whole (default) or only count them. */
  readonly records?: boolean;
  /** Does what an unscripted path does with deliveries; `ok()` by default. */
  readonly behaviour?: Behaviour;
}

export interface Receiver {
  readonly url: string;
  readonly port: number;
  /** Deliveries in order of arrival, the newest 20 000. */
  readonly requests: readonly ReceivedRequest[];
  /** Verification requests and handshakes, the newest 1 000. */
  readonly probes: readonly ReceivedRequest[];
  /** Deliveries since the start, recorded or not. */
  readonly received: number;
  /** Connections accepted since the start, and open now. */
  readonly connections: { readonly accepted: number; readonly open: number };
  /** Says what a path does with deliveries from now on. */
  script(path: string, behaviour: Behaviour): void;
  /** Says what a path does with verification requests; without it they succeed. */
  scriptProbe(path: string, behaviour: Behaviour): void;
  /** Secrets (`whsec_…`) any of which makes a signature valid. */
  useSecrets(secrets: readonly string[]): void;
  /** How often an event arrived, by `webhook-id`. */
  countOf(event_id: string): number;
  /** Every event that arrived, with how often. */
  readonly counts: ReadonlyMap<string, number>;
  /** Stops listening and drops all connections; connecting is refused. */
  down(): Promise<void>;
  /** Listens again on the same port. */
  up(): Promise<void>;
  close(): Promise<void>;
}

const REQUESTS_RECORDED_MAX = 20_000;
const PROBES_RECORDED_MAX = 1_000;
const EVENTS_COUNTED_MAX = 2_000_000;

/** An HTTP endpoint on a free port that behaves as told, path by path, and remembers what it got. */
export async function startReceiver(options: ReceiverOptions = {}): Promise<Receiver> {
  const requests: ReceivedRequest[] = [];
  const probes: ReceivedRequest[] = [];
  const counts = new Map<string, number>();
  const behaviours = new Map<string, Behaviour>();
  const probeBehaviours = new Map<string, Behaviour>();
  const sockets = new Set<Socket>();
  const fallback = options.behaviour ?? ok();
  let secrets: readonly string[] = [];
  let received = 0;
  let accepted = 0;

  function handle(request: IncomingMessage, response: ServerResponse, body: Buffer): void {
    const path = (request.url ?? '/').split('?')[0] ?? '/';
    const isProbe = request.method === 'OPTIONS' || isChallenge(request, body);
    if (options.records !== false || isProbe) {
      const recorded = {
        path,
        method: request.method ?? '',
        headers: request.headers,
        body,
        received_at_ms: Date.now(),
        signature: checkSignature(request.headers, body, secrets),
      };
      remember(isProbe ? probes : requests, recorded, isProbe);
    }
    if (isProbe) {
      const standard = request.method === 'OPTIONS' ? allowOrigin() : echoChallenge();
      (probeBehaviours.get(path) ?? standard)(request, response, body);
      return;
    }
    received += 1;
    count(counts, request.headers['webhook-id']);
    (behaviours.get(path) ?? fallback)(request, response, body);
  }

  const listener = (request: IncomingMessage, response: ServerResponse) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('error', () => {}); // the sender went away
    response.on('error', () => {});
    request.on('end', () => handle(request, response, Buffer.concat(chunks)));
  };
  const server =
    options.tls === undefined ? createServer(listener) : createSecureServer(options.tls, listener);
  server.keepAliveTimeout = options.keep_alive_ms ?? 60_000;
  server.on('connection', (socket: Socket) => {
    accepted += 1;
    sockets.add(socket);
    socket.on('error', () => {}); // resets by the other side are part of the game
    socket.once('close', () => sockets.delete(socket));
  });
  server.on('tlsClientError', () => {});

  const host = options.host ?? '127.0.0.1';
  let port = 0;
  const up = () =>
    new Promise<void>((resolve, reject) => {
      if (server.listening) return resolve();
      server.once('error', reject);
      server.listen(port, host, () => {
        server.removeListener('error', reject);
        port = (server.address() as AddressInfo).port;
        resolve();
      });
    });
  const down = async () => {
    if (!server.listening) return;
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    for (const socket of sockets) socket.destroy();
    await closed;
    // Two turns of the event loop, so that clients in this process have seen their connections end.
    for (let turn = 0; turn < 2; turn += 1) await new Promise(setImmediate);
  };
  await up();

  const name = host.includes(':') ? `[${host}]` : host;
  return {
    url: `${options.tls === undefined ? 'http' : 'https'}://${name}:${port}`,
    port,
    requests,
    probes,
    counts,
    get received() {
      return received;
    },
    get connections() {
      return { accepted, open: sockets.size };
    },
    script: (path, behaviour) => void behaviours.set(path, behaviour),
    scriptProbe: (path, behaviour) => void probeBehaviours.set(path, behaviour),
    useSecrets(list) {
      secrets = list;
    },
    countOf: (event_id) => counts.get(event_id) ?? 0,
    down,
    up,
    close: down,
  };
}

function remember(list: ReceivedRequest[], request: ReceivedRequest, isProbe: boolean): void {
  list.push(request);
  if (list.length > (isProbe ? PROBES_RECORDED_MAX : REQUESTS_RECORDED_MAX)) list.shift();
}

function count(counts: Map<string, number>, id: string | string[] | undefined): void {
  if (typeof id !== 'string') return;
  const known = counts.get(id);
  if (known === undefined && counts.size >= EVENTS_COUNTED_MAX) return;
  counts.set(id, (known ?? 0) + 1);
}

function isChallenge(request: IncomingMessage, body: Buffer): boolean {
  if (request.method !== 'POST' || body.length > 1024) return false;
  return body.includes('"webhook.verify"');
}

/** Standard Webhooks, written here a second time so that the hub's signatures are not checked by themselves. */
function checkSignature(
  headers: IncomingHttpHeaders,
  body: Buffer,
  secrets: readonly string[],
): ReceivedRequest['signature'] {
  if (secrets.length === 0) return 'unchecked';
  const given = String(headers['webhook-signature'] ?? '').split(' ');
  const isValid = secrets.some((secret) => {
    const key = Buffer.from(secret.replace(/^whsec_/, ''), 'base64');
    const mac = createHmac('sha256', key)
      .update(`${String(headers['webhook-id'])}.${String(headers['webhook-timestamp'])}.`)
      .update(body)
      .digest('base64');
    return given.some((signature) => equals(signature, `v1,${mac}`));
  });
  return isValid ? 'valid' : 'invalid';
}

function equals(left: string, right: string): boolean {
  const [a, b] = [Buffer.from(left), Buffer.from(right)];
  return a.length === b.length && timingSafeEqual(a, b);
}
