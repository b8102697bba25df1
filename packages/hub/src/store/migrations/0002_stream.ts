/**
 * The embedded stream: topics as append-only logs, and consumer groups.
 *
 * One row of `stream_log` is a chunk: the records that one transaction appended to one partition,
 * packed (see stream/embedded/codec.ts), so that the cost of a row is shared by many records.
 * The log is split by the day of appending; a day whose records have all outlived their retention
 * is dropped as a table.
 *
 * Offsets follow from the log's own tail, read under a row lock of the partition that is held to
 * commit. So a reader never sees an offset while a lower one is still to be committed, and there is
 * no counter row whose dead versions pile up under an old snapshot.
 */
export const stream = /* sql */ `
create table stream_topics (
  id           integer generated always as identity primary key,
  name         text not null unique,
  partitions   integer not null check (partitions > 0),
  retention_ms bigint,
  created_at   timestamptz not null default now()
);

-- first_offset: where the log starts after retention took its toll. Locked by every append.
create table stream_partitions (
  topic_id     integer not null references stream_topics (id),
  partition    integer not null,
  first_offset bigint not null default 0,
  primary key (topic_id, partition)
) with (fillfactor = 50);

-- Within a partition, day never falls as offsets grow. Columns are in the order that packs best.
create table stream_log (
  topic_id     integer not null,
  partition    integer not null,
  first_offset bigint not null,
  last_offset  bigint not null,
  appended_ms  bigint not null,
  timestamp_ms bigint not null,
  day          integer not null,
  bytes        integer not null,
  records      bytea not null,
  primary key (topic_id, partition, last_offset, day)
) partition by range (day);

create table stream_groups (
  name    text primary key,
  version bigint not null default 0
) with (fillfactor = 50);

create table stream_members (
  id         uuid primary key,
  group_name text not null references stream_groups (name),
  topics     integer[] not null,
  expires_at timestamptz not null
) with (fillfactor = 50);
create index stream_members_group on stream_members (group_name);

-- target: who should have the partition. owner: who has it; only the owner, in its generation, may commit.
create table stream_assignments (
  group_name  text not null references stream_groups (name),
  topic_id    integer not null,
  partition   integer not null,
  target      uuid,
  owner       uuid,
  generation  bigint not null default 0,
  next_offset bigint,
  primary key (group_name, topic_id, partition),
  foreign key (topic_id, partition) references stream_partitions (topic_id, partition)
) with (fillfactor = 50);

-- Creates the log's tables of the days from..until (since the Unix epoch); safe from several processes at once.
create function ensure_stream_days(from_day integer, until_day integer) returns void language plpgsql as $$
declare
  missing integer[];
begin
  select array_agg(d) into missing from generate_series(from_day, until_day) d
  where to_regclass(format('stream_log_d%s', d)) is null;
  if missing is null then return; end if;
  perform pg_advisory_xact_lock(1398096, 3);
  for d in from_day..until_day loop
    if to_regclass(format('stream_log_d%s', d)) is null then
      execute format('create table stream_log_d%s partition of stream_log for values from (%s) to (%s)', d, d, d + 1);
      -- Bodies are not worth the CPU of compressing, and chunks are cut to stay in one page.
      execute format('alter table stream_log_d%s alter column records set storage external', d);
      execute format('alter table stream_log_d%s set (toast_tuple_target = 8160)', d);
    end if;
  end loop;
end $$;

-- Appends chunks and wakes readers. Arrays run in parallel, one entry per chunk: before = records of
-- this call in earlier chunks of the same partition; start (from 1) and size locate it in the blob.
create function stream_append(
  sender text, topic_ids integer[], partitions integer[], counts integer[], befores integer[],
  timestamps bigint[], starts integer[], sizes integer[], blob bytea
) returns table (chunk bigint, offset_first bigint) language plpgsql as $$
declare
  now_ms  bigint;
  today   integer;
  locked  integer;
  distinct_partitions integer;
begin
  -- A statement of its own: the next one must see what the lock's former holder committed.
  perform 1 from stream_partitions p
  where (p.topic_id, p.partition) in (select * from unnest(topic_ids, partitions))
  order by p.topic_id, p.partition for no key update;
  get diagnostics locked = row_count;
  select count(distinct (t, p)) into distinct_partitions from unnest(topic_ids, partitions) u(t, p);
  if locked <> distinct_partitions then
    raise exception 'a partition of this append does not exist' using errcode = 'no_data_found';
  end if;

  now_ms := floor(extract(epoch from clock_timestamp()) * 1000);
  today := now_ms / 86400000;

  return query
  with chunks as (
    select * from unnest(topic_ids, partitions, counts, befores, timestamps, starts, sizes)
      with ordinality c(topic_id, partition, count, before, timestamp_ms, start, size, n)
  ), placed as materialized (
    select c.*, greatest(tail.at[1] + 1, p.first_offset) + c.before as first, greatest(tail.at[2], today) as on_day
    from chunks c
    join stream_partitions p on p.topic_id = c.topic_id and p.partition = c.partition
    cross join lateral (select coalesce(
      (select array[l.last_offset, l.day] from stream_log l
       where l.topic_id = c.topic_id and l.partition = c.partition and l.day >= today - 1
       order by l.last_offset desc limit 1),
      (select array[l.last_offset, l.day] from stream_log l
       where l.topic_id = c.topic_id and l.partition = c.partition
       order by l.last_offset desc limit 1),
      array[-1, 0]) as at) tail
  ), written as (
    insert into stream_log
    select p.topic_id, p.partition, p.first, p.first + p.count - 1, now_ms, p.timestamp_ms, p.on_day, p.size,
      substr(blob, p.start, p.size)
    from placed p
  )
  select p.n, p.first from placed p order by p.n;

  perform pg_notify('hub_stream', 'log ' || sender || ' ' || case when distinct_partitions <= 100
    then (select string_agg(distinct t || '/' || p, ' ') from unnest(topic_ids, partitions) u(t, p))
    else '*' end);
end $$;

-- Reads chunks that hold records from each offset on, in the order given. A partition gives at most
-- bytes_each, all together bytes_all (each exceeded by at most one chunk). A row without records says that the
-- partition has been read to its end; a partition without such a row has, or may have, more.
-- days: no chunk of interest lies before that day.
create function stream_read(
  topic_ids integer[], partitions integer[], offsets bigint[], days integer[], bytes_each integer, bytes_all integer
) returns table (n integer, first_offset bigint, day integer, bytes integer, records bytea) language plpgsql stable as $$
declare
  c record;
  taken_all integer := 0;
  taken     integer;
begin
  for i in 1..cardinality(topic_ids) loop
    taken := 0;
    for c in
      select l.first_offset, l.day, l.bytes, l.records from stream_log l
      where l.topic_id = topic_ids[i] and l.partition = partitions[i]
        and l.last_offset >= offsets[i] and l.day >= days[i]
      order by l.last_offset
    loop
      if taken >= bytes_each or taken_all >= bytes_all then exit; end if;
      n := i; first_offset := c.first_offset; day := c.day; bytes := c.bytes; records := c.records;
      return next;
      taken := taken + c.bytes;
      taken_all := taken_all + c.bytes;
    end loop;
    if taken < bytes_each and taken_all < bytes_all then
      n := i; first_offset := null; day := null; bytes := 0; records := null;
      return next;
    end if;
    if taken_all >= bytes_all then return; end if;
  end loop;
end $$;

-- Where each partition starts and ends (the offset its next record will get).
create function stream_bounds(topic_ids integer[], partitions integer[])
returns table (topic_id integer, partition integer, first_offset bigint, end_offset bigint) language sql stable as $$
  select p.topic_id, p.partition, p.first_offset, greatest(p.first_offset, coalesce(tail.last_offset + 1, 0))
  from unnest(topic_ids, partitions) u(t, n)
  join stream_partitions p on p.topic_id = u.t and p.partition = u.n
  left join lateral (
    select l.last_offset from stream_log l
    where l.topic_id = p.topic_id and l.partition = p.partition
    order by l.last_offset desc limit 1) tail on true
$$;
`;
