import { randomBytes } from 'node:crypto';
import { until } from '@streaming-hub/testkit';
import type {
  ConsumeOptions,
  OutgoingRecord,
  PartitionBatch,
  Stream,
  StreamConsumer,
  StreamRecord,
} from '../port.ts';

export interface OpenedStream {
  readonly stream: Stream;
  /** The same stream, opened as another process would. Closed by the caller or with the rest. */
  secondStream(): Promise<Stream>;
  close(): Promise<void>;
}

export interface ConformanceOptions {
  /** Longest wait for anything that is expected to happen. Default 10 s. */
  patience_ms?: number;
  /** Longest wait for a member that vanished to be replaced. Default 15 s. */
  vanish_patience_ms?: number;
  /** How long nothing may happen to be sure that it does not. Default 150 ms. */
  quiet_ms?: number;
  /** Value bytes of a record that the stream refuses; without it that case is left out. */
  refused_value_bytes?: number;
}

/** One consumer under test and what it was given. */
export interface Taken {
  readonly consumer: StreamConsumer;
  readonly batches: PartitionBatch[];
  readonly records: StreamRecord[];
  readonly faults: Error[];
}

export interface Harness {
  readonly stream: Stream;
  readonly quiet_ms: number;
  readonly vanish_patience_ms: number;
  readonly refused_value_bytes: number | undefined;
  readonly secondStream: () => Promise<Stream>;
  /** A topic of its own. */
  readonly topic: (partitions?: number) => Promise<string>;
  readonly name: (prefix: string) => string;
  /** Starts a consumer; without `onBatch` it takes every batch as handled. */
  readonly consume: (
    topics: string | RegExp,
    options?: Partial<ConsumeOptions> & { on?: Stream },
  ) => Promise<Taken>;
  readonly eventually: <T>(check: () => T | Promise<T>) => Promise<NonNullable<T>>;
  readonly stopAll: () => Promise<void>;
}

export function createHarness(opened: OpenedStream, options: ConformanceOptions): Harness {
  const consumers: StreamConsumer[] = [];
  const streams: Stream[] = [];
  const patience_ms = options.patience_ms ?? 10_000;
  const name = (prefix: string) => `${prefix}.${randomBytes(5).toString('hex')}`;

  return {
    stream: opened.stream,
    quiet_ms: options.quiet_ms ?? 150,
    vanish_patience_ms: options.vanish_patience_ms ?? 15_000,
    refused_value_bytes: options.refused_value_bytes,
    name,
    async secondStream() {
      const stream = await opened.secondStream();
      streams.push(stream);
      return stream;
    },
    async topic(partitions = 1) {
      const topic = name('conformance');
      await opened.stream.ensureTopics([{ name: topic, partitions }]);
      return topic;
    },
    async consume(topics, { on = opened.stream, onBatch, ...overrides } = {}) {
      const taken: Omit<Taken, 'consumer'> = { batches: [], records: [], faults: [] };
      const consumer = on.consume({
        ...defaults(name('group')),
        topics: typeof topics === 'string' ? exactly(topics) : topics,
        onFault: (fault) => void taken.faults.push(fault),
        ...overrides,
        async onBatch(batch) {
          taken.batches.push(batch);
          const next = onBatch ? await onBatch(batch) : after(batch);
          taken.records.push(...batch.records.filter((record) => record.offset < next));
          return next;
        },
      });
      consumers.push(consumer);
      await consumer.start();
      return { consumer, ...taken };
    },
    eventually: (check) => until(check, patience_ms),
    async stopAll() {
      await Promise.all(consumers.map((consumer) => consumer.stop(1000)));
      await Promise.all(streams.map((stream) => stream.close()));
    },
  };
}

function defaults(group: string): Omit<ConsumeOptions, 'topics' | 'onBatch' | 'onFault'> {
  return {
    group,
    refresh_interval_ms: 60_000,
    batch_records_max: 500,
    batch_bytes_max: 1024 * 1024,
    buffered_bytes_max: 16 * 1024 * 1024,
    loadPositions: async () => new Map(),
  };
}

/** The offset after the batch. */
export function after(batch: PartitionBatch): number {
  return (batch.records.at(-1)?.offset ?? -1) + 1;
}

/** The text as a pattern that matches only itself; enough for names of topics. */
export function literally(text: string): string {
  return text.replaceAll('.', '\\.');
}

export function exactly(...topics: string[]): RegExp {
  return new RegExp(topics.map(literally).join('|'));
}

/** A record whose value is the text. */
export function outgoing(
  topic: string,
  value: string,
  extra: Partial<OutgoingRecord> = {},
): OutgoingRecord {
  return { topic, key: null, value: Buffer.from(value), headers: [], ...extra };
}

/** `count` records for one partition, valued first, first + 1, … */
export function numbered(
  topic: string,
  partition: number,
  count: number,
  first = 0,
): OutgoingRecord[] {
  return Array.from({ length: count }, (_, n) => outgoing(topic, `${first + n}`, { partition }));
}

export function values(records: readonly StreamRecord[]): (string | null)[] {
  return records.map((record) => record.value?.toString() ?? null);
}

export interface Gate {
  readonly opened: Promise<void>;
  open(): void;
}

/** A promise that the test resolves when it wants. */
export function gate(): Gate {
  const { promise, resolve } = Promise.withResolvers<void>();
  return { opened: promise, open: resolve };
}
