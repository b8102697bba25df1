/**
 * A group's membership, in Postgres.
 *
 * Each assignment row names a target (who should have the partition) and an owner (who has it).
 * Targets are set by whoever changes the membership, under the lock of the group's row. A member
 * then gives back what it owns and is no longer its target of, once its running batch has ended,
 * and claims what it is the target of and nobody owns; each claim counts up the generation. Only
 * the owner, in its generation, can commit. Every change counts up the group's version, which
 * members see with each heartbeat; notifications only make them look sooner.
 *
 *   owner null, target M    --M claims-->             owner M, generation + 1
 *   owner M, target N       --M releases-->           owner null, target N
 *   owner M                 --M's lease runs out-->   owner null   (whoever notices)
 */
import type pg from 'pg';
import { withTransaction } from '../../store/index.ts';
import { assign } from './assign.ts';
import { integers } from './batch.ts';

export interface Owned {
  readonly topic_id: number;
  readonly partition: number;
  readonly generation: number;
}
export interface Claimed extends Owned {
  readonly next_offset: number | null;
}
export interface Commit extends Owned {
  readonly next_offset: number;
}
export interface SeatRow extends Owned {
  readonly target: string | null;
  readonly owner: string | null;
}

export interface Membership {
  /** This member. */
  readonly id: string;
  /** Enters the group, or tells it of other topics; removes members whose lease ran out; sets the targets. */
  join(topics: readonly number[]): Promise<void>;
  /** `member` false = removed by others. `expired` = somebody's lease ran out. */
  heartbeat(): Promise<{ member: boolean; version: number; expired: boolean }>;
  /** The rows that name this member, as of `version` or later. */
  seats(): Promise<{ version: number; seats: readonly SeatRow[] }>;
  claim(wanted: readonly Owned[]): Promise<readonly Claimed[]>;
  /** Returns the partitions whose commit was taken. */
  commit(commits: readonly Commit[]): Promise<readonly Owned[]>;
  release(owned: readonly Owned[]): Promise<void>;
  leave(): Promise<void>;
}

export function createMembership(
  pool: pg.Pool,
  options: { group: string; member: string; lease_ms: number },
): Membership {
  const { group, member, lease_ms } = options;
  const columns = (rows: readonly Owned[]) => [
    integers(rows.map((row) => row.topic_id)),
    integers(rows.map((row) => row.partition)),
    integers(rows.map((row) => row.generation)),
  ];

  return {
    id: member,
    async join(topics) {
      await withTransaction(pool, async (client) => {
        await lockGroup(client, group);
        await client.query(join_sql, [member, group, integers(topics), lease_ms]);
        await client.query(expire_sql, [group]);
        await balance(client, group);
      });
    },
    async heartbeat() {
      const found = await pool.query<{ version: number; expired: boolean; member: boolean }>({
        name: 'stream_heartbeat',
        text: heartbeat_sql,
        values: [member, group, lease_ms],
      });
      return found.rows[0] ?? { member: false, version: 0, expired: false };
    },
    async seats() {
      const found = await pool.query<SeatRow & { version: number }>(seats_sql, [group, member]);
      const version = found.rows[0]?.version ?? 0;
      return { version, seats: found.rows.filter((row) => row.topic_id !== null) };
    },
    async claim(wanted) {
      const found = await pool.query<Claimed>(claim_sql, [
        group,
        member,
        ...columns(wanted).slice(0, 2),
      ]);
      return found.rows;
    },
    async commit(commits) {
      const offsets = integers(commits.map((commit) => commit.next_offset));
      const found = await pool.query<Owned>({
        name: 'stream_commit',
        text: commit_sql,
        values: [group, member, ...columns(commits), offsets],
      });
      return found.rows;
    },
    async release(owned) {
      await pool.query(release_sql, [group, member, ...columns(owned)]);
    },
    async leave() {
      await withTransaction(pool, async (client) => {
        await lockGroup(client, group);
        await client.query(/* sql */ `delete from stream_members where id = $1`, [member]);
        await client.query(expire_sql, [group]);
        await balance(client, group);
      });
    },
  };
}

async function lockGroup(client: pg.PoolClient, group: string): Promise<void> {
  await client.query(
    /* sql */ `insert into stream_groups (name) values ($1) on conflict do nothing`,
    [group],
  );
  await client.query(/* sql */ `select 1 from stream_groups where name = $1 for no key update`, [
    group,
  ]);
}

/** Sets the targets of every partition that some member can take; the group's row is locked by the caller. */
async function balance(client: pg.PoolClient, group: string): Promise<void> {
  const members = await client.query<{ id: string; topics: number[] }>(
    /* sql */ `select id, topics from stream_members where group_name = $1 order by id`,
    [group],
  );
  const seats = await client.query<{
    topic_id: number;
    partition: number;
    target: string | null;
    known: boolean;
  }>(all_seats_sql, [group]);
  const targets = assign(
    seats.rows,
    members.rows.map(({ id, topics }) => ({ id, topics: new Set(topics) })),
  );
  const changed = seats.rows
    .map((seat, index) => ({ ...seat, to: targets[index] ?? null }))
    .filter((seat) => !seat.known || seat.to !== seat.target);
  await client.query(retarget_sql, [
    group,
    integers(changed.map((seat) => seat.topic_id)),
    integers(changed.map((seat) => seat.partition)),
    changed.map((seat) => seat.to),
  ]);
}

/** The lease is counted from after any wait for a lock: hence clock_timestamp(). */
const join_sql = /* sql */ `
  insert into stream_members (id, group_name, topics, expires_at)
  values ($1, $2, $3::integer[], clock_timestamp() + make_interval(secs => $4 / 1000.0))
  on conflict (id) do update set topics = excluded.topics, expires_at = excluded.expires_at`;

const expire_sql = /* sql */ `
  with gone as (
    delete from stream_members where group_name = $1 and expires_at < clock_timestamp() returning id
  )
  update stream_assignments a set owner = null
  where group_name = $1 and owner is not null
    and (owner in (select id from gone) or not exists (select from stream_members m where m.id = a.owner))`;

const all_seats_sql = /* sql */ `
  select topic_id, partition, a.target, a.topic_id is not null as known
  from (
    select t.id as topic_id, n as partition
    from stream_topics t cross join lateral generate_series(0, t.partitions - 1) n
    where t.id in (select unnest(topics) from stream_members where group_name = $1)
  ) wanted
  full join (select * from stream_assignments where group_name = $1) a using (topic_id, partition)
  order by topic_id, partition`;

const retarget_sql = /* sql */ `
  with changed as (
    insert into stream_assignments (group_name, topic_id, partition, target)
    select $1, topic_id, partition, target
    from unnest($2::integer[], $3::integer[], $4::uuid[]) u(topic_id, partition, target)
    on conflict (group_name, topic_id, partition) do update set target = excluded.target
  ), counted as (
    update stream_groups set version = version + 1 where name = $1
  )
  select pg_notify('hub_stream', 'group ' || $1)`;

const heartbeat_sql = /* sql */ `
  with beat as (
    update stream_members set expires_at = clock_timestamp() + make_interval(secs => $3 / 1000.0)
    where id = $1 returning id
  )
  select exists (select from beat) as member, g.version,
    exists (select from stream_members where group_name = $2 and id <> $1 and expires_at < clock_timestamp()) as expired
  from stream_groups g where g.name = $2`;

const seats_sql = /* sql */ `
  select g.version, a.topic_id, a.partition, a.generation, a.target, a.owner
  from stream_groups g
  left join stream_assignments a on a.group_name = g.name and (a.target = $2 or a.owner = $2)
  where g.name = $1`;

const claim_sql = /* sql */ `
  update stream_assignments a set owner = $2, generation = generation + 1
  from unnest($3::integer[], $4::integer[]) u(topic_id, partition)
  where a.group_name = $1 and a.topic_id = u.topic_id and a.partition = u.partition
    and a.target = $2 and (a.owner is null or a.owner = $2)
  returning a.topic_id, a.partition, a.generation, a.next_offset`;

const commit_sql = /* sql */ `
  update stream_assignments a set next_offset = u.next_offset
  from unnest($3::integer[], $4::integer[], $5::bigint[], $6::bigint[]) u(topic_id, partition, generation, next_offset)
  where a.group_name = $1 and a.topic_id = u.topic_id and a.partition = u.partition
    and a.owner = $2 and a.generation = u.generation
  returning a.topic_id, a.partition, a.generation`;

const release_sql = /* sql */ `
  with released as (
    update stream_assignments a set owner = null
    from unnest($3::integer[], $4::integer[], $5::bigint[]) u(topic_id, partition, generation)
    where a.group_name = $1 and a.topic_id = u.topic_id and a.partition = u.partition
      and a.owner = $2 and a.generation = u.generation
    returning 1
  ), counted as (
    update stream_groups set version = version + 1 where name = $1 and exists (select from released)
  )
  select pg_notify('hub_stream', 'group ' || $1) where exists (select from released)`;
