/** Who in the group gets which partition: subscriptions as members write them, shares as the leader computes them. */
import {
  type ClusterMetadata,
  cooperativeStickyAssigner,
  decodeConsumerProtocolSubscription,
  decodeCooperativeStickyGeneration,
  type ExtendedGroupProtocolSubscription,
  encodeConsumerProtocolSubscription,
  type GroupAssignment,
} from '@platformatic/kafka';
import type { TopicPartition } from '../port.ts';
import type { Cluster } from './cluster.ts';

export const COOPERATIVE_STICKY = 'cooperative-sticky';
/** Names owned partitions and, in its user data, the generation they are from; every Kafka client reads it. */
const SUBSCRIPTION_VERSION = 1;

export function encodeSubscription(
  topics: readonly string[],
  owned: readonly TopicPartition[],
  generation: number,
): Buffer {
  const userData = Buffer.alloc(4);
  userData.writeInt32BE(owned.length > 0 ? generation : -1);
  return encodeConsumerProtocolSubscription({
    version: SUBSCRIPTION_VERSION,
    topics: [...topics],
    userData,
    ownedPartitions: byTopic(owned),
  });
}

function byTopic(partitions: readonly TopicPartition[]): GroupAssignment[] {
  return [...Map.groupBy(partitions, (one) => one.topic)].map(([topic, ones]) => ({
    topic,
    partitions: ones.map((one) => one.partition),
  }));
}

/** Shares of all members, computed by the group's leader. Topics that vanished meanwhile belong to nobody. */
export async function assign(
  cluster: Cluster,
  members: readonly { readonly memberId: string; readonly metadata: Buffer }[],
): Promise<Map<string, GroupAssignment[]>> {
  const subscriptions = new Map<string, ExtendedGroupProtocolSubscription>();
  const topics = new Set<string>();
  for (const { memberId, metadata } of members) {
    const subscription = decodeConsumerProtocolSubscription(metadata);
    const generationId =
      subscription.version < 2
        ? decodeCooperativeStickyGeneration(subscription.userData)
        : subscription.generationId;
    for (const topic of subscription.topics) topics.add(topic);
    subscriptions.set(memberId, {
      memberId,
      version: subscription.version,
      topics: subscription.topics,
      ownedPartitions: subscription.ownedPartitions,
      generationId,
    });
  }
  if (topics.size > 0) await cluster.refresh([...topics]);
  const shares = cooperativeStickyAssigner('', subscriptions, topics, describe(cluster, topics));
  return new Map(shares.map((share) => [share.memberId, [...share.assignments.values()]]));
}

/** The assigner counts partitions; it needs nothing else of the client's picture of a cluster. */
function describe(cluster: Cluster, topics: ReadonlySet<string>): ClusterMetadata {
  const described: ClusterMetadata['topics'] = new Map();
  for (const name of topics) {
    const topic = cluster.topic(name);
    if (topic === undefined) continue;
    const partitionsCount = topic.partitions.length;
    described.set(name, { id: name, partitions: [], partitionsCount, lastUpdate: 0 });
  }
  return { id: '', brokers: new Map(), controllerId: -1, topics: described, lastUpdate: 0 };
}
