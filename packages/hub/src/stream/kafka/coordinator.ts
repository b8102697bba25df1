/** The broker that coordinates one consumer group: found on first use, and again when it moved. */
import { type API, type Connection, findCoordinatorV4 } from '@platformatic/kafka';
import type { Cluster } from './cluster.ts';
import type { KafkaAddress } from './connections.ts';
import { kafkaErrorNames, responseOf } from './errors.ts';

const GROUP = 0;

export class Coordinator {
  readonly group: string;
  readonly #cluster: Cluster;
  readonly #scope: string;
  readonly #join_timeout_ms: number;
  readonly #request_timeout_ms: number;
  #address: Promise<KafkaAddress> | null = null;

  /** `scope` keeps this consumer's connections apart from those of others. */
  constructor(
    cluster: Cluster,
    group: string,
    scope: string,
    timeouts: { readonly join_ms: number; readonly request_ms: number },
  ) {
    this.#cluster = cluster;
    this.group = group;
    this.#scope = scope;
    this.#join_timeout_ms = timeouts.join_ms;
    this.#request_timeout_ms = timeouts.request_ms;
  }

  /**
   * Sends one request to the coordinator. Joins have a connection of their own, as they are
   * answered only when the whole group has joined. A coordinator that moved or is gone is looked up
   * again by the next call.
   */
  async ask<Arguments extends unknown[], Answer>(
    purpose: 'join' | 'heartbeat' | 'commit' | 'leave',
    api: API<Arguments, Answer>,
    ...request: Arguments
  ): Promise<Answer> {
    try {
      const connection = await this.#connection(purpose);
      return await api.async(connection, ...request);
    } catch (error) {
      const names = kafkaErrorNames(error);
      const moved = names.has('NOT_COORDINATOR') || names.has('COORDINATOR_NOT_AVAILABLE');
      if (moved || responseOf(error) === null) this.#address = null;
      throw error;
    }
  }

  async close(): Promise<void> {
    await Promise.all(
      ['join', 'heartbeat', 'commit'].map((purpose) =>
        this.#cluster.connections.close(`${this.#scope}-${purpose}`),
      ),
    );
  }

  async #connection(purpose: string): Promise<Connection> {
    this.#address ??= this.#find();
    const address = await this.#address;
    const timeout_ms = purpose === 'join' ? this.#join_timeout_ms : this.#request_timeout_ms;
    const shared = purpose === 'leave' ? 'heartbeat' : purpose;
    return this.#cluster.connections.get(address, `${this.#scope}-${shared}`, timeout_ms);
  }

  async #find(): Promise<KafkaAddress> {
    const answer = await this.#cluster.askAny(findCoordinatorV4.api, GROUP, [this.group]);
    const [found] = answer.coordinators;
    if (found === undefined) throw new Error(`no coordinator for the consumer group ${this.group}`);
    return { host: found.host, port: found.port };
  }
}
