/** What the Kafka tests share. */
import { randomBytes } from 'node:crypto';
import { until } from '@streaming-hub/testkit';
import { onTestFinished } from 'vitest';
import { wait } from '../../base/index.ts';
import type {
  ConsumeOptions,
  OutgoingRecord,
  PartitionBatch,
  Stream,
  StreamConsumer,
  StreamRecord,
} from '../port.ts';
import { type KafkaStreamOptions, openKafkaStream } from './index.ts';

/** Load, but no more of it than tests need. */
const PUBLISH_pause_ms = 2;

export function unique(prefix: string): string {
  return `${prefix}.${randomBytes(5).toString('hex')}`;
}

/** A stream with the short session that tests want. */
export function openStream(
  brokers: readonly string[],
  options: Partial<KafkaStreamOptions> = {},
): Stream {
  return openKafkaStream({
    brokers,
    client_id: 'test',
    ...options,
    group: { session_timeout_ms: 6_000, heartbeat_interval_ms: 200, ...options.group },
  });
}

export interface Reading {
  readonly consumer: StreamConsumer;
  readonly records: StreamRecord[];
  readonly faults: Error[];
}

export function after(batch: PartitionBatch): number {
  return (batch.records.at(-1)?.offset ?? -1) + 1;
}

/** Builds and starts a consumer that keeps every record it handles. */
export async function read(
  stream: Stream,
  topic: string,
  options: Partial<ConsumeOptions> = {},
): Promise<Reading> {
  const records: StreamRecord[] = [];
  const faults: Error[] = [];
  const consumer = stream.consume({
    group: unique('group'),
    topics: new RegExp(topic.replaceAll('.', '\\.')),
    refresh_interval_ms: 60_000,
    batch_records_max: 500,
    batch_bytes_max: 1024 * 1024,
    buffered_bytes_max: 16 * 1024 * 1024,
    loadPositions: async () => new Map(),
    onFault: (fault) => void faults.push(fault),
    ...options,
    async onBatch(batch) {
      const next = options.onBatch ? await options.onBatch(batch) : after(batch);
      records.push(...batch.records.filter((record) => record.offset < next));
      return next;
    },
  });
  await consumer.start();
  return { consumer, records, faults };
}

export function text(topic: string, value: string, partition?: number): OutgoingRecord {
  return {
    topic,
    key: null,
    value: Buffer.from(value),
    headers: [],
    ...(partition !== undefined && { partition }),
  };
}

export function values(records: readonly StreamRecord[]): string[] {
  return records.map((record) => record.value?.toString() ?? '');
}

export interface Publishing {
  readonly acknowledged: Set<string>;
  readonly errors: Error[];
  stop(): Promise<void>;
}

/** Four writers publish numbers one after the other until stopped (or the test ends); kept are those acknowledged. */
export function publishNumbers(stream: Stream, topic: string, partitions: number): Publishing {
  const acknowledged = new Set<string>();
  const errors: Error[] = [];
  let going = true;
  const writer = async (lane: number) => {
    for (let number = 0; going; number += 1) {
      const value = `${lane}-${number}`;
      try {
        await stream.publish([text(topic, value, number % partitions)]);
        acknowledged.add(value);
      } catch (error) {
        errors.push(error as Error);
      }
      await wait(PUBLISH_pause_ms);
    }
  };
  const writers = Promise.all([0, 1, 2, 3].map(writer));
  const stop = async () => {
    going = false;
    await writers;
  };
  onTestFinished(stop);
  return { acknowledged, errors, stop };
}

/** Acknowledged values that never arrive. */
export async function lost(publishing: Publishing, reading: Reading): Promise<string[]> {
  const missing = new Set(publishing.acknowledged);
  let looked_at = 0;
  const look = () => {
    for (; looked_at < reading.records.length; looked_at += 1) {
      missing.delete(reading.records[looked_at]?.value?.toString() ?? '');
    }
    return missing.size === 0;
  };
  await until(look, 30_000).catch(() => {});
  return [...missing];
}
