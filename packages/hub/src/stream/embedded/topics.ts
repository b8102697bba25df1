import type pg from 'pg';
import { type TopicSpec, UnknownTopicError } from '../port.ts';

export interface TopicInfo {
  readonly id: number;
  readonly name: string;
  readonly partitions: number;
}

const name_pattern = /^[a-zA-Z0-9._-]{1,249}$/;
const partitions_max = 1024;

/** The topics of the stream. What exists is remembered: topics are never deleted and keep their partitions. */
export interface Topics {
  /** Reads one topic. @throws UnknownTopicError */
  byName(name: string): Promise<TopicInfo>;
  /** From memory only. */
  known(name: string): TopicInfo | undefined;
  /** From memory only. */
  byId(id: number): TopicInfo | undefined;
  ensure(specs: readonly TopicSpec[]): Promise<void>;
  /** Reads them all. */
  list(): Promise<readonly TopicInfo[]>;
}

export function createTopics(pool: pg.Pool): Topics {
  const names = new Map<string, TopicInfo>();
  const loading = new Map<string, Promise<TopicInfo>>();
  const ids = new Map<number, TopicInfo>();

  async function load(name: string): Promise<TopicInfo> {
    const found = await pool.query<TopicInfo>(
      /* sql */ `select id, name, partitions from stream_topics where name = $1`,
      [name],
    );
    remember(found.rows);
    const topic = found.rows[0];
    if (!topic) throw new UnknownTopicError(name);
    return topic;
  }

  function remember(found: readonly TopicInfo[]): void {
    for (const topic of found) {
      names.set(topic.name, topic);
      ids.set(topic.id, topic);
    }
  }

  return {
    known: (name) => names.get(name),
    byName(name) {
      // Shared, so that calls made in order go on in order.
      const running = loading.get(name) ?? load(name).finally(() => loading.delete(name));
      loading.set(name, running);
      return running;
    },
    byId: (id) => ids.get(id),
    async ensure(specs) {
      specs.forEach(checkSpec);
      const missing = specs.filter((spec) => !names.has(spec.name));
      if (missing.length === 0) return;
      await pool.query(ensure_sql, [
        missing.map((spec) => spec.name),
        missing.map((spec) => spec.partitions),
        missing.map((spec) => spec.retention_ms ?? null),
      ]);
    },
    async list() {
      const found = await pool.query<TopicInfo>(
        /* sql */ `select id, name, partitions from stream_topics order by name`,
      );
      remember(found.rows);
      return found.rows;
    },
  };
}

/** The whole name has to match, whatever anchors and flags the pattern has. */
export function topicMatches(pattern: RegExp, name: string): boolean {
  return new RegExp(`^(?:${pattern.source})$`, pattern.flags.replace(/[gy]/g, '')).test(name);
}

function checkSpec(spec: TopicSpec): void {
  if (!name_pattern.test(spec.name)) {
    throw new RangeError(
      `${JSON.stringify(spec.name)} is not a topic name: 1 to 249 of a-z A-Z 0-9 . _ -`,
    );
  }
  if (
    !Number.isInteger(spec.partitions) ||
    spec.partitions < 1 ||
    spec.partitions > partitions_max
  ) {
    throw new RangeError(
      `the topic ${spec.name} needs 1 to ${partitions_max} partitions, not ${spec.partitions}`,
    );
  }
}

/** Sorted, so that two calls with the same names in another order cannot block each other. */
const ensure_sql = /* sql */ `
  with created as (
    insert into stream_topics (name, partitions, retention_ms)
    select distinct on (s.name) s.name, s.partitions, s.retention_ms
    from unnest($1::text[], $2::integer[], $3::bigint[]) s(name, partitions, retention_ms)
    order by s.name
    on conflict (name) do nothing
    returning id, partitions
  ), spread as (
    insert into stream_partitions (topic_id, partition)
    select id, n from created cross join lateral generate_series(0, partitions - 1) n
  )
  select pg_notify('hub_stream', 'topics') where exists (select from created)`;
