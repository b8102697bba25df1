/** Topics of the cluster: listing, and creating what is missing. */
import { createTopicsV7 } from '@platformatic/kafka';
import { wait } from '../../base/index.ts';
import type { TopicSpec } from '../port.ts';
import type { Cluster } from './cluster.ts';
import { fault, responseOf } from './errors.ts';

const CREATE_TIMEOUT_ms = 8_000;
const VISIBLE_TIMEOUT_ms = 10_000;
/** A value of 1 MiB, the contract's largest, with its attributes; Kafka's default leaves them no room. */
const MESSAGE_bytes_max = 1024 * 1024 + 128 * 1024;
const TOPIC_ALREADY_EXISTS = 36;

/** Creates the missing ones (replication: the cluster's default) and waits until each has its leaders. */
export async function ensureTopics(cluster: Cluster, specs: readonly TopicSpec[]): Promise<void> {
  await cluster.refresh(null);
  const missing = specs.filter((spec) => cluster.topic(spec.name) === undefined);
  if (missing.length > 0) await create(cluster, missing);
  const deadline_ms = performance.now() + VISIBLE_TIMEOUT_ms;
  const names = specs.map((spec) => spec.name);
  while (!names.every((name) => ready(cluster, name))) {
    if (performance.now() > deadline_ms) {
      throw fault(`topics did not get their leaders in time: ${names.join(', ')}`, null);
    }
    await wait(20);
    await cluster.refresh(names);
  }
}

function ready(cluster: Cluster, name: string): boolean {
  return cluster.topic(name)?.partitions.every((partition) => partition.leader >= 0) ?? false;
}

async function create(cluster: Cluster, specs: readonly TopicSpec[]): Promise<void> {
  const request = specs.map((spec) => ({
    name: spec.name,
    numPartitions: spec.partitions,
    replicationFactor: -1,
    assignments: [],
    configs: [
      { name: 'max.message.bytes', value: String(MESSAGE_bytes_max) },
      ...(spec.retention_ms === undefined
        ? []
        : [{ name: 'retention.ms', value: String(spec.retention_ms) }]),
    ],
  }));
  try {
    await cluster.askAny(createTopicsV7.api, request, CREATE_TIMEOUT_ms, false);
  } catch (error) {
    const answer = responseOf<createTopicsV7.CreateTopicsResponse>(error);
    const failed = answer?.topics?.filter(
      (topic) => topic.errorCode !== 0 && topic.errorCode !== TOPIC_ALREADY_EXISTS,
    );
    if (failed === undefined) throw fault('cannot create topics', error);
    const [first] = failed;
    if (first === undefined) return;
    throw fault(
      `cannot create the topic ${first.name}: ${first.errorMessage ?? first.errorCode}`,
      error,
    );
  }
}
