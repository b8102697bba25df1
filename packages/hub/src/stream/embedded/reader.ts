import type pg from 'pg';
import { backoff_ms, wait } from '../../base/index.ts';
import { type AppendedChunk, integers } from './batch.ts';
import { createLatch } from './latch.ts';
import type { AssignedPartition } from './partition.ts';

/** Without any notification the log is looked at this often: at first, and after a while without records. */
const poll_active_ms = 250;
const poll_idle_ms = 2000;
const poll_deaf_ms = 500;
const retry_base_ms = 100;
const retry_max_ms = 3000;
const partitions_per_read_max = 200;

interface ReadRow {
  n: number;
  first_offset: number | null;
  day: number;
  bytes: number;
  /** Base64. */
  records: string | null;
}

export interface Reader {
  add(partition: AssignedPartition): void;
  remove(partition: AssignedPartition): void;
  /** Keys `${topic_id}/${partition}` that have new records; null = look everywhere. */
  appended(keys: readonly string[] | null): void;
  /**
   * Chunks that this process has just appended. A partition that waits for exactly them gets them from
   * memory, which saves reading them back; the others are told that there is something to read.
   */
  written(chunks: readonly AppendedChunk[]): void;
  /** The partition may be able to take more. */
  hungry(partition: AssignedPartition): void;
  buffered(bytes: number): void;
  healthy(): boolean;
  start(): void;
  stop(): Promise<void>;
}

/**
 * Reads the log for all partitions of one consumer, many in one query, while the memory held stays
 * below `buffered_bytes_max` (a read may pass it by one chunk). A partition is asked again when it was
 * not read to its end, when it got records, and at each poll.
 */
export function createReader(
  pool: pg.Pool,
  options: {
    batch_bytes_max: number;
    buffered_bytes_max: number;
    onFault: (fault: Error) => void;
    /** Whether notifications arrive; otherwise it polls faster. */
    hears: () => boolean;
  },
): Reader {
  const partitions = new Map<string, AssignedPartition>();
  let ready = new Set<AssignedPartition>();
  const latch = createLatch();
  const stopping = new AbortController();
  let buffered_bytes = 0;
  let failures = 0;
  let running: Promise<void> | undefined;

  async function run(): Promise<void> {
    let poll_ms = poll_active_ms;
    let polled_at_ms = performance.now();
    while (!stopping.signal.aborted) {
      try {
        if (await readOnce()) poll_ms = poll_active_ms;
        failures = 0;
        if (moreToRead()) continue;
        if (!options.hears()) poll_ms = Math.min(poll_ms, poll_deaf_ms);
        await latch.pass(polled_at_ms + poll_ms - performance.now(), stopping.signal);
        if (performance.now() - polled_at_ms >= poll_ms) {
          polled_at_ms = performance.now();
          poll_ms = Math.min(poll_ms * 2, poll_idle_ms);
          for (const partition of partitions.values()) ready.add(partition);
        }
      } catch (error) {
        options.onFault(new Error('reading the stream failed; trying again', { cause: error }));
        await wait(backoff_ms(failures++, retry_base_ms, retry_max_ms), stopping.signal);
      }
    }
  }

  function room(): number {
    return options.buffered_bytes_max - buffered_bytes;
  }

  function moreToRead(): boolean {
    if (room() <= 0) return false;
    for (const partition of ready) if (partition.wants()) return true;
    return false;
  }

  /** Whether anything was read. */
  async function readOnce(): Promise<boolean> {
    const bytes_all = room();
    if (bytes_all <= 0) return false;
    const asked = [];
    for (const partition of ready) {
      const place = partition.wants();
      if (place) asked.push({ partition, ...place });
      if (asked.length === partitions_per_read_max) break;
    }
    if (asked.length === 0) return false;
    // Taken out first: what is appended during the read puts it back. Those that are not at
    // their end are put back behind the others, so that all get their turn.
    for (const { partition } of asked) ready.delete(partition);
    const at_end = new Set<number>();
    let took = false;
    try {
      const rows = await query(asked, bytes_all);
      for (const { n, first_offset, day, records } of rows) {
        const one = asked[n - 1];
        if (!one) continue;
        if (records === null || first_offset === null) at_end.add(n);
        else {
          const chunk = { first_offset, day, records: Buffer.from(records, 'base64') };
          one.partition.take(chunk, one.epoch);
        }
        took ||= records !== null;
      }
    } finally {
      asked.forEach(({ partition, epoch }, index) => {
        if (at_end.has(index + 1) && partition.wants()?.epoch === epoch) return;
        if (!partition.signal.aborted) ready.add(partition);
      });
    }
    return took;
  }

  async function query(
    asked: readonly { partition: AssignedPartition; offset: number; day: number }[],
    bytes_all: number,
  ): Promise<ReadRow[]> {
    const found = await pool.query<ReadRow>({
      name: 'stream_read',
      text: /* sql */ `select n, first_offset, day, bytes, records from stream_read($1, $2, $3, $4, $5, $6)`,
      values: [
        integers(asked.map(({ partition }) => partition.topic_id)),
        integers(asked.map(({ partition }) => partition.partition)),
        integers(asked.map(({ offset }) => offset)),
        integers(asked.map(({ day }) => day)),
        options.batch_bytes_max,
        bytes_all,
      ],
    });
    return found.rows;
  }

  return {
    add(partition) {
      partitions.set(keyOf(partition), partition);
      ready.add(partition);
      latch.open();
    },
    remove(partition) {
      if (partitions.get(keyOf(partition)) === partition) partitions.delete(keyOf(partition));
      ready.delete(partition);
    },
    appended(keys) {
      for (const key of keys ?? partitions.keys()) {
        const partition = partitions.get(key);
        if (!partition) continue;
        ready.add(partition);
        latch.open();
      }
    },
    written(chunks) {
      for (const chunk of chunks) {
        const partition = partitions.get(keyOf(chunk));
        if (!partition) continue;
        const place = room() > 0 ? partition.wants() : null;
        if (place?.offset === chunk.first_offset) {
          // A copy: a view would keep the bytes of all chunks of that transaction.
          const records = chunks.length > 1 ? Buffer.from(chunk.records) : chunk.records;
          partition.take(
            { first_offset: chunk.first_offset, day: place.day, records },
            place.epoch,
          );
        } else {
          ready.add(partition);
          latch.open();
        }
      }
    },
    hungry(partition) {
      if (ready.has(partition)) latch.open();
    },
    buffered(bytes) {
      buffered_bytes += bytes;
      if (bytes < 0) latch.open();
    },
    healthy: () => failures === 0,
    start() {
      running ??= run();
    },
    async stop() {
      stopping.abort();
      await running;
      ready = new Set();
    },
  };
}

export function keyOf(owned: { topic_id: number; partition: number }): string {
  return `${owned.topic_id}/${owned.partition}`;
}
