import { partitionForKey } from '../partitioner.ts';
import type { OutgoingRecord } from '../port.ts';

export interface PartitionChooser {
  /** Records without a key stay together within one call and move on with the next. */
  nextCall(): void;
  /** @throws RangeError for a partition that the topic does not have */
  for(record: OutgoingRecord, partitions: number): number;
}

export function chooser(): PartitionChooser {
  let turn = Math.floor(Math.random() * 1024);
  return {
    nextCall: () => {
      turn = (turn + 1) % Number.MAX_SAFE_INTEGER;
    },
    for: (record, partitions) => {
      if (record.partition !== undefined) {
        if (
          Number.isInteger(record.partition) &&
          record.partition >= 0 &&
          record.partition < partitions
        ) {
          return record.partition;
        }
        throw new RangeError(`the topic ${record.topic} has no partition ${record.partition}`);
      }
      return record.key === null ? turn % partitions : partitionForKey(record.key, partitions);
    },
  };
}
