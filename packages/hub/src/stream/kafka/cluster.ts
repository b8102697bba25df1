/**
 * What is known about the cluster: brokers, topics, leaders. One instance serves the producer and
 * every consumer of a stream.
 *
 * Versions of requests are fixed rather than negotiated: those used here exist in every Kafka from
 * 3.0 to (at least) 4.4.
 */
import { type API, type Connection, listOffsetsV7, metadataV12 } from '@platformatic/kafka';
import {
  type ConnectionSettings,
  Connections,
  type KafkaAddress,
  parseAddress,
} from './connections.ts';
import { errorTree, fault, KafkaAccessError, responseOf } from './errors.ts';

export interface PartitionInfo {
  /** Node id of the leader, -1 while there is none. */
  readonly leader: number;
}

export interface TopicInfo {
  readonly name: string;
  readonly internal: boolean;
  readonly partitions: readonly PartitionInfo[];
}

const CONTROL_TIMEOUT_ms = 10_000;
const ANY_REPLICA = -1;
const READ_COMMITTED = 1;

export class Cluster {
  readonly connections: Connections;
  readonly #bootstrap: readonly KafkaAddress[];
  #brokers = new Map<number, KafkaAddress>();
  #topics = new Map<string, TopicInfo>();
  /** When brokers that could not be reached were last tried (monotonic). */
  readonly #silent = new Map<string, number>();
  readonly #refreshing = new Map<string, Promise<void>>();

  constructor(brokers: readonly string[], settings: ConnectionSettings) {
    if (brokers.length === 0) throw new KafkaAccessError('no Kafka brokers are configured');
    this.#bootstrap = brokers.map(parseAddress);
    this.connections = new Connections(settings);
  }

  topic(name: string): TopicInfo | undefined {
    return this.#topics.get(name);
  }

  topics(): readonly TopicInfo[] {
    return [...this.#topics.values()].filter((topic) => !topic.internal);
  }

  leader(topic: string, partition: number): number {
    return this.#topics.get(topic)?.partitions[partition]?.leader ?? -1;
  }

  hasBroker(node: number): boolean {
    return this.#brokers.has(node);
  }

  /** A connection to one broker for one purpose. */
  async connection(node: number, purpose: string, request_timeout_ms: number): Promise<Connection> {
    const address = this.#brokers.get(node);
    if (address === undefined) throw fault(`broker ${node} is not known`, null);
    return this.connections.get(address, purpose, request_timeout_ms);
  }

  /** Asks any broker; the first that can be reached answers. */
  async askAny<Arguments extends unknown[], Answer>(
    api: API<Arguments, Answer>,
    ...request: Arguments
  ): Promise<Answer> {
    const errors: unknown[] = [];
    for (const address of this.#addresses()) {
      try {
        const connection = await this.connections.get(address, 'control', CONTROL_TIMEOUT_ms);
        const answer = await api.async(connection, ...request);
        this.#silent.delete(addressKey(address));
        return answer;
      } catch (error) {
        if (error instanceof KafkaAccessError || responseOf(error) !== null) throw error;
        this.#silent.set(addressKey(address), performance.now());
        errors.push(error);
      }
    }
    throw errors.length === 1 ? errors[0] : fault('no Kafka broker can be reached', errors[0]);
  }

  /** Learnt brokers first, in random order; those of the configuration as the way back in; lately silent ones last. */
  #addresses(): KafkaAddress[] {
    const known = [...this.#brokers.values()];
    const start = Math.floor(Math.random() * Math.max(1, known.length));
    const rest = this.#bootstrap.filter(
      (one) => !known.some((other) => other.host === one.host && other.port === one.port),
    );
    const all = [...known.slice(start), ...known.slice(0, start), ...rest];
    const silent_ms = (one: KafkaAddress) => this.#silent.get(addressKey(one)) ?? 0;
    return all.sort((a, b) => silent_ms(a) - silent_ms(b));
  }

  /** Reads the state of some topics, or (null) of all. Calls at the same time share one request. */
  refresh(names: readonly string[] | null): Promise<void> {
    const key = names === null ? '' : [...names].sort().join(' ');
    const running = this.#refreshing.get(key);
    if (running !== undefined) return running;
    const started = this.#refresh(names).finally(() => this.#refreshing.delete(key));
    this.#refreshing.set(key, started);
    return started;
  }

  async #refresh(names: readonly string[] | null): Promise<void> {
    let answer: metadataV12.MetadataResponse;
    try {
      answer = await this.askAny(metadataV12.api, names === null ? null : [...names], false, false);
    } catch (error) {
      // A topic or leader that is missing makes the whole answer an error; the rest of it is good.
      const partial = responseOf<metadataV12.MetadataResponse>(error);
      if (partial === null || !('brokers' in partial)) throw error;
      answer = partial;
    }
    if (answer.brokers.length > 0) {
      this.#brokers = new Map(
        answer.brokers.map(({ nodeId, host, port }) => [nodeId, { host, port }]),
      );
    }
    const topics = names === null ? new Map<string, TopicInfo>() : new Map(this.#topics);
    for (const name of names ?? []) topics.delete(name);
    for (const topic of answer.topics) {
      if (topic.name === null || topic.name === undefined || topic.partitions.length === 0)
        continue;
      const partitions: PartitionInfo[] = [];
      for (const one of topic.partitions) {
        partitions[one.partitionIndex] = { leader: one.leaderId };
      }
      topics.set(topic.name, { name: topic.name, internal: topic.isInternal, partitions });
    }
    this.#topics = topics;
  }

  /**
   * Offsets by time: -1 the end (of what committed readers may see), -2 the beginning.
   * Partitions without a leader, or whose leader has moved, are missing from the result.
   */
  async listOffsets(
    wanted: readonly { readonly topic: string; readonly partition: number }[],
    timestamp: -1 | -2,
  ): Promise<Map<string, number>> {
    const byLeader = Map.groupBy(wanted, (one) => this.leader(one.topic, one.partition));
    const found = new Map<string, number>();
    await Promise.all(
      [...byLeader].map(async ([leader, partitions]) => {
        if (leader < 0) return;
        const byTopic = Map.groupBy(partitions, (one) => one.topic);
        const topics = [...byTopic].map(([name, ones]) => ({
          name,
          partitions: ones.map((one) => ({
            partitionIndex: one.partition,
            currentLeaderEpoch: -1,
            timestamp: BigInt(timestamp),
          })),
        }));
        const answer = await this.#listOffsets(leader, topics);
        for (const topic of answer.topics) {
          for (const one of topic.partitions) {
            if (one.errorCode !== 0) continue;
            found.set(`${topic.name}/${one.partitionIndex}`, Number(one.offset));
          }
        }
      }),
    );
    return found;
  }

  async #listOffsets(
    leader: number,
    topics: listOffsetsV7.ListOffsetsRequestTopic[],
  ): Promise<listOffsetsV7.ListOffsetsResponse> {
    const connection = await this.connection(leader, 'control', CONTROL_TIMEOUT_ms);
    try {
      return await listOffsetsV7.api.async(connection, ANY_REPLICA, READ_COMMITTED, topics);
    } catch (error) {
      const partial = responseOf<listOffsetsV7.ListOffsetsResponse>(error);
      if (partial === null) throw error;
      return partial;
    }
  }

  /** Whether an error means that the way of connecting is refused, so that trying again is of no use. */
  static refused(error: unknown): KafkaAccessError | null {
    for (const one of errorTree(error)) if (one instanceof KafkaAccessError) return one;
    return null;
  }
}

function addressKey(address: KafkaAddress): string {
  return `${address.host}:${address.port}`;
}
