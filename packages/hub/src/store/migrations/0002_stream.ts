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
-- Bodies are not worth the CPU of compressing them.
alter table stream_log alter column records set storage external;

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
-- They are made apart and attached, which locks out neither readers nor writers.
create function ensure_stream_days(from_day integer, until_day integer) returns void language plpgsql as $$
declare
  home  oid := (select relnamespace from pg_class where oid = 'stream_log'::regclass);
  days  integer[];
begin
  for attempt in 1..2 loop
    select array_agg(d order by d) into days from generate_series(from_day, until_day) d
    where not exists (select from pg_class where relname = 'stream_log_d' || d and relnamespace = home);
    if days is null then return; end if;
    -- Asked again under the lock: another process may just have made them.
    if attempt = 1 then perform pg_advisory_xact_lock(1398096, 3); end if;
  end loop;
  foreach from_day in array days loop
    -- Chunks are cut to stay in one page.
    execute format('create table stream_log_d%s (like stream_log including all) with (toast_tuple_target = 8160)', from_day);
    execute format('alter table stream_log attach partition stream_log_d%s for values from (%s) to (%s)',
      from_day, from_day, from_day + 1);
  end loop;
end $$;

-- Appends chunks and wakes readers; gives the first offset of each chunk. Arrays run in parallel, one
-- entry per chunk, sorted by topic and partition; start (from 1) and size locate a chunk in the blob.
-- Loops and single-row statements: one statement over arrays took three times as long for one
-- chunk, mostly to set up scans of all days for a tail that is nearly always found in today's table.
create function stream_append(
  sender text, topic_ids integer[], partitions integer[], counts integer[],
  timestamps bigint[], starts integer[], sizes integer[], blob bytea
) returns setof bigint language plpgsql as $$
declare
  t          integer;
  p          integer;
  now_ms     bigint;
  today      integer;
  log_start  bigint;
  log_starts bigint[];
  tail       record;
  next       bigint;
  on_day     integer;
  woken      text := '';
begin
  -- First all the locks, in order. What their former holders committed is seen by the statements that follow.
  for i in 1..cardinality(topic_ids) loop
    if t is distinct from topic_ids[i] or p is distinct from partitions[i] then
      t := topic_ids[i];
      p := partitions[i];
      select first_offset into strict log_start from stream_partitions s
      where s.topic_id = t and s.partition = p for no key update;
      woken := woken || ' ' || t || '/' || p;
    end if;
    log_starts[i] := log_start;
  end loop;

  now_ms := floor(extract(epoch from clock_timestamp()) * 1000);
  today := now_ms / 86400000;
  t := null;
  for i in 1..cardinality(topic_ids) loop
    if t is distinct from topic_ids[i] or p is distinct from partitions[i] then
      t := topic_ids[i];
      p := partitions[i];
      select last_offset, day into tail from stream_log l
      where l.topic_id = t and l.partition = p and l.day = today order by last_offset desc limit 1;
      if not found then
        select last_offset, day into tail from stream_log l
        where l.topic_id = t and l.partition = p order by last_offset desc limit 1;
      end if;
      next := greatest(log_starts[i], coalesce(tail.last_offset + 1, 0));
      on_day := greatest(today, tail.day);
    end if;
    insert into stream_log values (t, p, next, next + counts[i] - 1, now_ms, timestamps[i], on_day, sizes[i],
      substr(blob, starts[i], sizes[i]));
    return next next;
    next := next + counts[i];
  end loop;

  if length(woken) > 7000 then woken := ' *'; end if;
  perform pg_notify('hub_stream', 'log ' || sender || woken);
end $$;

-- Reads chunks that hold records from each offset on, in the order given. A partition gives at most
-- bytes_each, all together bytes_all (each exceeded by at most one chunk). A row without records says that the
-- partition has been read to its end; a partition without such a row has, or may have, more.
-- days: no chunk of interest lies before that day. Base64, since the client takes a third of the time to
-- decode it that hex takes (7 against 25 us for 8 KiB).
create function stream_read(
  topic_ids integer[], partitions integer[], offsets bigint[], days integer[], bytes_each integer, bytes_all integer
) returns table (n integer, first_offset bigint, day integer, bytes integer, records text) language plpgsql stable as $$
declare
  today     integer := extract(epoch from clock_timestamp())::bigint / 86400;
  taken_all integer := 0;
  taken     integer;
  here      refcursor;
begin
  for i in 1..cardinality(topic_ids) loop
    taken := 0;
    -- Who has come as far as today needs only today's table; that takes a third of the time.
    if days[i] = today then
      open here for
        select l.first_offset, l.day, l.bytes, encode(l.records, 'base64') from stream_log l
        where l.topic_id = topic_ids[i] and l.partition = partitions[i]
          and l.last_offset >= offsets[i] and l.day = today
        order by l.last_offset;
    else
      open here for
        select l.first_offset, l.day, l.bytes, encode(l.records, 'base64') from stream_log l
        where l.topic_id = topic_ids[i] and l.partition = partitions[i]
          and l.last_offset >= offsets[i] and l.day >= days[i]
        order by l.last_offset;
    end if;
    n := i;
    while taken < bytes_each and taken_all < bytes_all loop
      fetch here into first_offset, day, bytes, records;
      if not found then
        first_offset := null; day := null; bytes := 0; records := null;
        return next;
        exit;
      end if;
      return next;
      taken := taken + bytes;
      taken_all := taken_all + bytes;
    end loop;
    close here;
    if taken_all >= bytes_all then return; end if;
  end loop;
end $$;

-- Where each partition starts and ends (the offset its next record will get); n counts the arrays' entries from 1.
create function stream_bounds(topic_ids integer[], partitions integer[])
returns table (n bigint, first_offset bigint, end_offset bigint) language sql stable as $$
  select u.n, p.first_offset, greatest(p.first_offset, coalesce(tail.last_offset + 1, 0))
  from unnest(topic_ids, partitions) with ordinality u(topic_id, partition, n)
  join stream_partitions p on p.topic_id = u.topic_id and p.partition = u.partition
  left join lateral (
    select l.last_offset from stream_log l
    where l.topic_id = p.topic_id and l.partition = p.partition
    order by l.last_offset desc limit 1) tail on true
$$;
`;
