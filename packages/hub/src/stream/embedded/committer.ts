import type { Commit, Membership } from './group.ts';
import type { AssignedPartition } from './partition.ts';

/** Positions are written by the clock, not by the batch: each write leaves a dead row version. */
const commit_interval_ms = 1000;

export interface Committer {
  /** The partition's position has changed; it is committed within the interval. */
  moved(partition: AssignedPartition): void;
  /** Commits what has not been committed of these; resolves when commits under way have ended too. */
  flush(partitions: readonly AssignedPartition[]): Promise<void>;
  stop(): void;
}

/** Commits the group's offsets. `lost` hears that somebody else owns one of the partitions meanwhile. */
export function createCommitter(
  membership: Pick<Membership, 'commit'>,
  hooks: { lost(): void; onFault(fault: Error): void },
): Committer {
  const dirty = new Set<AssignedPartition>();
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  let turn: Promise<void> = Promise.resolve();

  function flush(partitions: readonly AssignedPartition[]): Promise<void> {
    turn = turn.then(() => commit(partitions));
    return turn;
  }

  async function commit(partitions: readonly AssignedPartition[]): Promise<void> {
    const commits: Commit[] = [];
    for (const partition of partitions) {
      const next_offset = partition.position();
      if (!dirty.delete(partition) || next_offset === null) continue;
      const { topic_id, generation } = partition;
      commits.push({ topic_id, partition: partition.partition, generation, next_offset });
    }
    if (commits.length === 0) return;
    try {
      const taken = await membership.commit(commits);
      if (taken.length < commits.length) hooks.lost();
    } catch (error) {
      for (const partition of partitions) schedule(partition);
      hooks.onFault(new Error('committing offsets failed; trying again', { cause: error }));
    }
  }

  function schedule(partition: AssignedPartition): void {
    if (stopped) return;
    dirty.add(partition);
    timer ??= setTimeout(() => {
      timer = undefined;
      void flush([...dirty]);
    }, commit_interval_ms);
  }

  return {
    moved: schedule,
    flush,
    stop() {
      stopped = true;
      clearTimeout(timer);
      timer = undefined;
      dirty.clear();
    },
  };
}
