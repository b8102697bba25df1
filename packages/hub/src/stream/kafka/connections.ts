/**
 * Connections to brokers: one per broker and purpose, opened on first use, forgotten when they
 * close. Purposes are kept apart because a broker answers one connection's requests strictly in
 * turn: a long poll or a join would hold up everything behind it.
 */
import { Connection } from '@platformatic/kafka';
import { errorTree, fault, KafkaAccessError, rootMessage } from './errors.ts';

export interface KafkaSasl {
  readonly mechanism: 'PLAIN' | 'SCRAM-SHA-256' | 'SCRAM-SHA-512';
  readonly username: string;
  readonly password: string;
}

export interface KafkaAddress {
  readonly host: string;
  readonly port: number;
}

export interface ConnectionSettings {
  readonly client_id: string;
  readonly sasl?: KafkaSasl;
  /** Certificates of the authorities to trust, PEM; without `ca` those that Node trusts. */
  readonly tls?: { readonly ca?: string | readonly string[] };
}

const CONNECT_TIMEOUT_ms = 5_000;

export class Connections {
  readonly #settings: ConnectionSettings;
  readonly #open = new Map<string, Promise<Connection>>();
  #closed = false;

  constructor(settings: ConnectionSettings) {
    this.#settings = settings;
  }

  /** Throws KafkaAccessError where trying again cannot help, else KafkaFault. */
  get(address: KafkaAddress, purpose: string, request_timeout_ms: number): Promise<Connection> {
    if (this.#closed) return Promise.reject(fault('the stream is closed', null));
    const key = `${purpose} ${address.host}:${address.port}`;
    const existing = this.#open.get(key);
    if (existing !== undefined) return existing;
    const opening = this.#connect(address, request_timeout_ms, () => {
      if (this.#open.get(key) === opening) this.#open.delete(key);
    });
    this.#open.set(key, opening);
    return opening;
  }

  /** Closes the connections of one purpose, or all. Requests under way fail. */
  async close(purpose?: string): Promise<void> {
    if (purpose === undefined) this.#closed = true;
    const closing = [...this.#open].filter(
      ([key]) => purpose === undefined || key.startsWith(`${purpose} `),
    );
    for (const [key] of closing) this.#open.delete(key);
    await Promise.allSettled(
      closing.map(async ([, opening]) => {
        const connection = await opening;
        await connection.close();
      }),
    );
  }

  async #connect(
    address: KafkaAddress,
    request_timeout_ms: number,
    forget: () => void,
  ): Promise<Connection> {
    const { client_id, sasl, tls } = this.#settings;
    const ca = tls?.ca;
    const connection = new Connection(client_id, {
      connectTimeout: CONNECT_TIMEOUT_ms,
      requestTimeout: request_timeout_ms,
      ...(sasl && { sasl: { ...sasl } }),
      ...(tls && {
        tls: { ...(ca !== undefined && { ca: typeof ca === 'string' ? ca : [...ca] }) },
        tlsServerName: !isAddress(address.host),
      }),
    });
    connection.on('close', forget);
    // Every request fails with the same error, so this listener only keeps Node from throwing it.
    connection.on('error', forget);
    try {
      await connection.connect(address.host, address.port);
      return connection;
    } catch (error) {
      forget();
      throw this.#explain(address, error);
    }
  }

  #explain(address: KafkaAddress, error: unknown): Error {
    const where = `${address.host}:${address.port}`;
    const { sasl, tls } = this.#settings;
    // The library calls it a refused login as well when the broker hangs up instead of answering.
    const closed = rootMessage(error) === 'Connection closed';
    if (closed && sasl) {
      return fault(
        `Kafka at ${where} hung up during the login (does that port expect a login, and TLS?)`,
        error,
      );
    }
    for (const one of errorTree(error)) {
      const code = 'code' in one ? String(one.code) : '';
      if (code === 'PLT_KFK_AUTHENTICATION' && !closed) {
        const login = `user ${sasl?.username ?? '(none)'}, ${sasl?.mechanism ?? 'no mechanism'}`;
        return new KafkaAccessError(
          `Kafka at ${where} refused the login (${login}): ${rootMessage(error)}`,
          { cause: error },
        );
      }
      if (one.message === 'Broker requires TLS.') {
        return new KafkaAccessError(`Kafka at ${where} requires TLS: turn TLS on`, {
          cause: error,
        });
      }
      if (tls && /CERT|SELF_SIGNED|UNABLE_TO_VERIFY|EPROTO|ERR_SSL|ERR_TLS/.test(code)) {
        return new KafkaAccessError(
          `no TLS connection to Kafka at ${where} (is the right authority certificate configured, and does the port speak TLS?): ${one.message}`,
          { cause: error },
        );
      }
    }
    return fault(`cannot connect to Kafka at ${where}`, error);
  }
}

/** Server names in TLS are for host names; addresses must not be sent. */
function isAddress(host: string): boolean {
  return /^[\d.]+$/.test(host) || host.includes(':');
}

/** `host`, `host:port` or `[v6]:port`. */
export function parseAddress(text: string): KafkaAddress {
  const match = /^(?:\[([^\]]+)\]|([^:]+))(?::(\d+))?$/.exec(text.trim());
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3] ?? 9092);
  if (host === undefined || port < 1 || port > 65_535) {
    throw new KafkaAccessError(`"${text}" is not a Kafka address of the form host:port`);
  }
  return { host, port };
}
