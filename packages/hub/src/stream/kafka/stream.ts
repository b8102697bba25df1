/** The stream on a Kafka cluster (3.0 or newer). */
import type {
  ConsumeOptions,
  OutgoingRecord,
  RecordPosition,
  Stream,
  StreamConsumer,
  TopicSpec,
} from '../port.ts';
import { Cluster } from './cluster.ts';
import type { KafkaSasl } from './connections.ts';
import { type GroupTimings, KafkaConsumer } from './consumer.ts';
import { fault } from './errors.ts';
import { Producer } from './producer.ts';
import { ensureTopics } from './topics.ts';

export interface KafkaStreamOptions {
  /** `host:port`, one or more: where to begin; the rest of the cluster is learnt from them. */
  readonly brokers: readonly string[];
  readonly client_id: string;
  readonly sasl?: KafkaSasl;
  /** `{}` trusts the authorities that Node trusts; `ca` is PEM text. */
  readonly tls?: { readonly ca?: string | readonly string[] };
  /** Told about faults of the producer that it survives. */
  onFault?(fault: Error): void;
  /** A `publish` that is not acknowledged after so long fails. */
  readonly delivery_timeout_ms?: number;
  readonly group?: Partial<GroupTimings>;
}

const DELIVERY_TIMEOUT_ms = 30_000;

const timings: GroupTimings = {
  session_timeout_ms: 10_000,
  heartbeat_interval_ms: 1_000,
  rebalance_timeout_ms: 30_000,
  commit_interval_ms: 200,
};

/** Nothing connects until the stream is used. */
export function openKafkaStream(options: KafkaStreamOptions): Stream {
  const cluster = new Cluster(options.brokers, {
    client_id: options.client_id,
    ...(options.sasl && { sasl: options.sasl }),
    ...(options.tls && { tls: options.tls }),
  });
  return new KafkaStream(cluster, options);
}

class KafkaStream implements Stream {
  readonly #cluster: Cluster;
  readonly #options: KafkaStreamOptions;
  readonly #producer: Producer;
  readonly #consumers = new Set<KafkaConsumer>();

  constructor(cluster: Cluster, options: KafkaStreamOptions) {
    this.#cluster = cluster;
    this.#options = options;
    this.#producer = new Producer(cluster, {
      delivery_timeout_ms: options.delivery_timeout_ms ?? DELIVERY_TIMEOUT_ms,
      onFault: (error) => options.onFault?.(error),
    });
  }

  publish(records: readonly OutgoingRecord[]): Promise<readonly RecordPosition[]> {
    return this.#producer.publish(records);
  }

  consume(options: ConsumeOptions): StreamConsumer {
    const group = { ...timings, ...this.#options.group };
    const consumer = new KafkaConsumer(this.#cluster, options, group, () => {
      this.#consumers.delete(consumer);
    });
    this.#consumers.add(consumer);
    return consumer;
  }

  ensureTopics(topics: readonly TopicSpec[]): Promise<void> {
    return ensureTopics(this.#cluster, topics);
  }

  async listTopics(): Promise<readonly { name: string; partitions: number }[]> {
    await this.#cluster.refresh(null);
    return this.#cluster
      .topics()
      .map((topic) => ({ name: topic.name, partitions: topic.partitions.length }));
  }

  async ping(): Promise<void> {
    try {
      await this.#cluster.refresh([]);
    } catch (error) {
      throw Cluster.refused(error) ?? fault('Kafka cannot be reached', error);
    }
  }

  async close(): Promise<void> {
    await Promise.all([...this.#consumers].map((consumer) => consumer.stop()));
    this.#producer.close();
    await this.#cluster.connections.close();
  }
}
