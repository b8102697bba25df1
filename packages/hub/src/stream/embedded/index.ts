/**
 * The stream that lives in Postgres: topics are append-only logs in tables (migrations/0002_stream.ts).
 *
 *   publish ─▶ publisher (group commit) ─▶ batch, codec (records → chunks) ─▶ stream_append
 *                 └─ chunks, from memory ─▶┐                                     └─ NOTIFY ─▶ listener ─┐
 *   consume ─▶ consumer (membership loop) ─▶ reader (one query for many partitions) ◀────────────────────┘
 *                 ├─ group, assign (who should have what, leases, generations)
 *                 └─ holdings ─▶ partition (buffer, one batch at a time) ─▶ onBatch ─▶ committer
 *   retention: tables of the days, and their end
 */
import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { openPool, type StoreLog } from '../../store/index.ts';
import type { Stream } from '../port.ts';
import { createConsumer, type EmbeddedConsumer } from './consumer.ts';
import { createListener } from './listener.ts';
import { createPublisher } from './publisher.ts';
import { createRetention } from './retention.ts';
import { createTopics } from './topics.ts';

const connections_max = 6;
const lease_ms_default = 10_000;
const retention_ms_default = 7 * 86_400_000;
const record_bytes_max_default = 8 * 1024 * 1024;
/** Longer than any statement here takes; a connection that answers nothing is given up after it. */
const query_timeout_ms = 20_000;

/**
 * Every statement here finds rows by key. Plans are made once per connection, often while the
 * tables are still empty, when scanning them looks cheap; so scans are ruled out.
 */
const planner = [
  'plan_cache_mode=force_generic_plan',
  'enable_seqscan=off',
  'enable_bitmapscan=off',
  'enable_hashjoin=off',
  'enable_mergejoin=off',
].map((setting) => `-c ${setting}`);

export interface EmbeddedStreamOptions {
  /** The migrated database that holds the log. The stream opens connections of its own. */
  readonly database: pg.PoolConfig;
  readonly log?: StoreLog;
  /** Told about faults the stream survives outside of any consumer. */
  readonly onFault?: (fault: Error) => void;
  /** A member that is not heard of for this long loses its partitions. Default 10 s. */
  readonly lease_ms?: number;
  /** For topics without a retention of their own. Default 7 days. */
  readonly retention_ms?: number;
  /** Packed size (key, value, headers and 24 bytes or so) of one record. Default 8 MiB. */
  readonly record_bytes_max?: number;
}

/** Opens the stream that lives in Postgres. Nothing is read or written before its first use. */
export function openEmbeddedStream(options: EmbeddedStreamOptions): Stream {
  const { database, log, lease_ms = lease_ms_default } = options;
  const onFault = (fault: Error) => {
    log?.warn({ err: fault }, fault.message);
    options.onFault?.(fault);
  };
  const sender = randomUUID();
  const pool = openPool(
    {
      query_timeout: query_timeout_ms,
      ...database,
      options: [database.options, ...planner].filter(Boolean).join(' '),
    },
    { application_name: 'hub-stream', max: connections_max, ...(log && { log }) },
  );
  const topics = createTopics(pool);
  const listener = createListener(database, { sender, onFault });
  const publisher = createPublisher(pool, topics, {
    sender,
    record_bytes_max: options.record_bytes_max ?? record_bytes_max_default,
    appended: (chunks) => listener.emit({ kind: 'written', chunks }),
  });
  const retention = createRetention(pool, {
    retention_ms_default: options.retention_ms ?? retention_ms_default,
    onFault,
  });
  const consumers = new Set<EmbeddedConsumer>();
  let closing: Promise<void> | undefined;

  async function close(): Promise<void> {
    await Promise.all([...consumers].map((consumer) => consumer.kill()));
    await Promise.all([publisher.close(), retention.stop(), listener.close()]);
    await pool.end();
  }

  return {
    publish: (records) => {
      void retention.start();
      return publisher.publish(records);
    },
    consume(consumeOptions) {
      void retention.start();
      const consumer = createConsumer({ pool, topics, listener, lease_ms }, consumeOptions);
      consumers.add(consumer);
      return {
        ...consumer,
        stop: (timeout_ms) => consumer.stop(timeout_ms).finally(() => consumers.delete(consumer)),
      };
    },
    ensureTopics: (specs) => topics.ensure(specs),
    async listTopics() {
      return (await topics.list()).map(({ name, partitions }) => ({ name, partitions }));
    },
    async ping() {
      try {
        await pool.query(/* sql */ `select from stream_topics limit 1`);
      } catch (error) {
        const reason = error instanceof Error ? error.message : JSON.stringify(error);
        throw new Error(`the embedded stream cannot be reached: ${reason}`, { cause: error });
      }
    },
    close: () => (closing ??= close()),
  };
}
