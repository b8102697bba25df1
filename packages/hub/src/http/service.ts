import type { FastifyInstance } from 'fastify';
import { type Service, wait } from '../base/index.ts';
import type { ListenAddress } from '../settings/index.ts';
import type { Readiness } from './readiness.ts';

export interface HttpService extends Service {
  /** Where it listens, such as `http://127.0.0.1:8090`; null before `start` and after `stop`. */
  url(): string | null;
}

export interface HttpServiceOptions {
  readonly app: FastifyInstance;
  readonly address: ListenAddress;
  readonly readiness: Readiness;
  /** How long `/readyz` says 503 before the server stops taking requests. */
  readonly drain_ms: number;
}

/** Requests still running this long after the server stopped taking new ones are cut off. */
const closeTimeout_ms = 10_000;

/**
 * Listens, and on `stop` first turns `/readyz` to 503, keeps serving for `drain_ms`, then closes:
 * running requests finish (within a bound), idle connections end.
 */
export function createHttpService(options: HttpServiceOptions): HttpService {
  const { app, address, readiness, drain_ms } = options;
  let starting: Promise<string> | null = null;
  let stopping: Promise<void> | null = null;
  let url: string | null = null;

  async function listen(): Promise<string> {
    await app.listen({ port: address.port, host: address.host === '' ? '::' : address.host });
    return urlOf(app, address.host);
  }

  async function close(): Promise<void> {
    readiness.drain();
    const started = await starting?.catch(() => null);
    if (started) await wait(drain_ms);
    const cutOff = setTimeout(() => app.server.closeAllConnections(), closeTimeout_ms);
    await app.close();
    clearTimeout(cutOff);
    url = null;
  }

  return {
    async start() {
      if (stopping) throw new Error('the HTTP service has been stopped; build a new one');
      starting ??= listen();
      url = await starting;
    },
    stop() {
      stopping ??= close();
      return stopping;
    },
    url: () => url,
  };
}

function urlOf(app: FastifyInstance, host: string): string {
  const bound = app.server.address();
  if (bound === null || typeof bound === 'string') throw new Error('the HTTP server did not bind');
  const everyInterface = host === '' || host === '0.0.0.0' || host === '::';
  const shown = everyInterface ? '127.0.0.1' : host.includes(':') ? `[${host}]` : host;
  return `http://${shown}:${bound.port}`;
}
