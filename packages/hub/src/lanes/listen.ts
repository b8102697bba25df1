import pg from 'pg';
import type { Service } from '../base/index.ts';
import { backoff_ms, wait } from '../base/index.ts';

/**
 * LISTEN on one connection of its own, rebuilt with back-off when it breaks. Notifications are
 * hints: whoever uses this must also be right without them.
 */
export class Listener implements Service {
  readonly #config: pg.ClientConfig;
  readonly #handlers: Readonly<Record<string, (payload: string) => void>>;
  readonly #onFault: (fault: Error) => void;
  readonly #abort = new AbortController();
  #loop: Promise<void> | null = null;

  constructor(
    config: pg.ClientConfig,
    handlers: Readonly<Record<string, (payload: string) => void>>,
    onFault: (fault: Error) => void,
  ) {
    this.#config = config;
    this.#handlers = handlers;
    this.#onFault = onFault;
  }

  async start(): Promise<void> {
    this.#loop ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#loop;
  }

  async #run(): Promise<void> {
    for (let failures = 0; !this.#abort.signal.aborted; failures += 1) {
      const client = new pg.Client({
        ...this.#config,
        application_name: 'streaming-hub listen',
        connectionTimeoutMillis: 10_000,
        query_timeout: 10_000,
        keepAlive: true,
      });
      const broken = new Promise<void>((resolve) => {
        client.on('error', () => resolve());
        client.on('end', () => resolve());
        this.#abort.signal.addEventListener('abort', () => resolve(), { once: true });
      });
      client.on('notification', (message) =>
        this.#handlers[message.channel]?.(message.payload ?? ''),
      );
      try {
        await client.connect();
        for (const channel of Object.keys(this.#handlers))
          await client.query(`listen ${client.escapeIdentifier(channel)}`);
        failures = 0;
        for (const handler of Object.values(this.#handlers)) handler('');
        await broken;
      } catch (error) {
        this.#onFault(
          new Error('the notification connection broke; reconnecting', { cause: error }),
        );
      }
      await client.end().catch(() => undefined);
      await wait(backoff_ms(failures, 100, 5_000), this.#abort.signal);
    }
  }
}
