import type pg from 'pg';
import type { PartitionLag } from '../port.ts';
import { integers } from './batch.ts';
import type { AssignedPartition } from './partition.ts';

interface BoundsRow {
  n: number;
  first_offset: number;
  end_offset: number;
}

/** How far each partition's position is behind the end of its log; those without a position yet are left out. */
export async function readLag(
  pool: pg.Pool,
  partitions: readonly AssignedPartition[],
): Promise<readonly PartitionLag[]> {
  const started = partitions.flatMap((one) => {
    const position = one.position();
    return position === null ? [] : [{ one, position }];
  });
  if (started.length === 0) return [];
  const found = await pool.query<BoundsRow>(
    /* sql */ `select n::integer, first_offset, end_offset from stream_bounds($1, $2)`,
    [
      integers(started.map(({ one }) => one.topic_id)),
      integers(started.map(({ one }) => one.partition)),
    ],
  );
  return found.rows.flatMap(({ n, first_offset, end_offset }) => {
    const held = started[n - 1];
    if (!held) return [];
    const { topic, partition } = held.one;
    // Records that retention has taken are not waiting for anybody.
    const position = Math.max(held.position, first_offset);
    return [{ topic, partition, position, lag: Math.max(0, end_offset - position) }];
  });
}
