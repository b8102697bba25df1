import type { TopicPartition } from '../port.ts';

/** The port's name of a partition in maps: `${topic}/${partition}`. */
export function partitionKey(one: TopicPartition): string {
  return `${one.topic}/${one.partition}`;
}
