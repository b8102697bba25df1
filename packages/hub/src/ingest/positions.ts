import type pg from 'pg';
import type { TopicPartition } from '../stream/index.ts';

export const partitionKey = ({ topic, partition }: TopicPartition) => `${topic}/${partition}`;

interface Row {
  topic: string;
  partition: number;
  next_offset: number | string;
}

/** Stored positions of these partitions; a partition never ingested is not in the answer. Key: `${topic}/${partition}`. */
export async function readPositions(
  pool: pg.Pool,
  partitions: readonly TopicPartition[],
): Promise<ReadonlyMap<string, number>> {
  const result = await pool.query<Row>(
    /* sql */ `
      select b.topic, b.partition, b.next_offset
      from unnest($1::text[], $2::integer[]) u(topic, partition)
      cross join lateral (
        select * from ingested_batches i
        where i.topic = u.topic and i.partition = u.partition
        order by i.number desc limit 1
      ) b`,
    [partitions.map(({ topic }) => topic), partitions.map(({ partition }) => partition)],
  );
  return new Map(result.rows.map((row) => [partitionKey(row), Number(row.next_offset)]));
}
