/**
 * The ingest statement: one call of `ingest_batch` is one transaction for one batch of one partition.
 *
 * Steps, in this order, each a statement with its own snapshot (read committed):
 *   1. fence       the stored position must be the one the caller started from; otherwise nothing
 *                  is written and the stored position is returned. Batches of a partition are
 *                  numbered by a unique key, so of two processes that hold the same partition one
 *                  waits for the other and then loses.
 *   2. quarantine  records that can never be events; keyed by their place on the stream.
 *   3. match       once per distinct (tenant, origin, type, major) of the batch, not per event:
 *                  `k_*` are those keys, `e_key` says which one an event has. Before the gate,
 *                  because it needs no sequence.
 *   4. gate        advisory lock (1398096, 1), held to commit: whoever reads by sequence can never
 *                  pass a row that commits later.
 *   5. sequence    microseconds since the epoch, or the last one + 1. The last one lives in a
 *                  Postgres sequence that is only read and set under the gate: no row to update, no
 *                  dead versions, kept by backups, and independent of what has been pruned.
 *                  `setval` is not undone by a rollback, which only leaves a gap.
 *   6. insert      events, then one delivery per match of an event that was new, then the batch's
 *                  line in `batch_log`, then a hint to the dispatchers. Events go in without looking
 *                  for duplicates first; the key finds them, and then (or where the caller has met
 *                  duplicates lately: `p_careful`) the same rows go in one by one `on conflict do
 *                  nothing`. That saves an eighth of the database time of a batch without
 *                  duplicates (two runs on a busy machine: 31 -> 25 and 40 -> 35 µs per event).
 *
 * Everything variable-sized travels in one binary parameter: for event n, `e_at[n]` is where its
 * attributes (JSON, UTF-8) start, its body follows them; a length of -1 means null. The same for the
 * headers and value of quarantined records.
 *
 * Plans: the function pins generic plans and forbids the scans and joins that a plan made on empty
 * tables would choose and keep.
 */
const insertEvents = /* sql */ `insert into event_inbox (tenant_id, ce_id, seq, origin, event_type, attributes, body)
        select k_tenant[e.key], e.id, base + e.n - 1, k_origin[e.key], k_type[e.key],
               convert_from(substr(p_blob, e.at, e.attributes), 'UTF8')::json,
               case when e.body >= 0 then substr(p_blob, e.at + e.attributes, e.body) end
        from unnest(e_id, e_key, e_at, e_attributes, e_body) with ordinality
          e(id, key, at, attributes, body, n)`;

export const ingest = /* sql */ `
create sequence arrival_sequence;

-- The key made last wins where the planner finds both indexes equally cheap, which is so for a week
-- that was analyzed while empty. Otherwise a look-up by id reads all events of its tenant by the
-- other index, for as long as that plan is kept. Partitions copy the order.
alter table event_inbox drop constraint event_inbox_pkey;
alter table event_inbox add primary key (tenant_id, ce_id);

-- Compressing is the dearest thing that could happen to a body, and it would happen inside the gate:
-- JSON of 2, 4, 16 KiB cost 92, 128, 880 µs of database time, uncompressed 62, 64, 126 (and 1.7, 2,
-- 2.5 times the bytes).
alter table event_inbox alter column body set storage external, alter column attributes set storage external;

-- The truth about what has been ingested: the newest row of a partition. Append-only, because a row
-- updated by every batch is a chain that every batch walks while an old snapshot is open: 30 000
-- batches of one event under one took 0.6 ms of database time at first and 2.1 ms at the end.
drop table stream_positions;
create table ingested_batches (
  topic       text not null,
  partition   integer not null,
  number      bigint not null,
  next_offset bigint not null,
  ingested_at timestamptz not null default now(),
  primary key (topic, partition, number)
);

-- Walks from partition to partition, not through their rows.
create view stream_positions as
with recursive newest as (
  (select b.topic, b.partition, b.next_offset, b.ingested_at from ingested_batches b
   order by b.topic desc, b.partition desc, b.number desc limit 1)
  union all
  select b.* from newest n cross join lateral (
    select b.topic, b.partition, b.next_offset, b.ingested_at from ingested_batches b
    where (b.topic, b.partition) < (n.topic, n.partition)
    order by b.topic desc, b.partition desc, b.number desc limit 1) b
)
select topic, partition, next_offset, ingested_at as updated_at from newest;

create function ingest_batch(
  p_topic text, p_partition integer, p_expected bigint, p_next bigint, p_careful boolean, p_blob bytea,
  k_tenant text[], k_origin text[], k_type text[], k_wildcard text[], k_major integer[],
  e_id uuid[], e_key integer[], e_at integer[], e_attributes integer[], e_body integer[],
  q_id uuid[], q_offset bigint[], q_reason text[], q_detail text[],
  q_at integer[], q_headers integer[], q_value integer[],
  out applied boolean, out position_now bigint, out stored_count integer, out delivery_count integer
) language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off
as $$
declare
  batches_kept constant integer := 256;
  last_number bigint;
  event_count integer := coalesce(array_length(e_id, 1), 0);
  m_event  integer[];
  m_lane   integer[];
  m_number integer[];
  base     bigint;
begin
  stored_count := 0;
  delivery_count := 0;

  select b.number, b.next_offset into last_number, position_now from ingested_batches b
  where b.topic = p_topic and b.partition = p_partition order by b.number desc limit 1;
  applied := last_number is null or position_now = p_expected;
  if applied then
    last_number := coalesce(last_number, 0) + 1;
    insert into ingested_batches (topic, partition, number, next_offset)
    values (p_topic, p_partition, last_number, p_next)
    on conflict do nothing;
    applied := found;
  end if;
  if not applied then
    select b.next_offset into strict position_now from ingested_batches b
    where b.topic = p_topic and b.partition = p_partition order by b.number desc limit 1;
    return;
  end if;
  position_now := p_next;
  if last_number % batches_kept = 0 then
    delete from ingested_batches b
    where b.topic = p_topic and b.partition = p_partition and b.number <= last_number - batches_kept;
  end if;

  if array_length(q_id, 1) > 0 then
    insert into quarantine (id, topic, partition, record_offset, reason, detail, headers, value)
    select q.id, p_topic, p_partition, q.record_offset, q.reason, q.detail,
           convert_from(substr(p_blob, q.at, q.headers), 'UTF8')::json,
           case when q.value >= 0 then substr(p_blob, q.at + q.headers, q.value) end
    from unnest(q_id, q_offset, q_reason, q_detail, q_at, q_headers, q_value)
      q(id, record_offset, reason, detail, at, headers, value)
    on conflict (topic, partition, record_offset) do nothing;
  end if;

  if event_count = 0 then
    return;
  end if;

  with m as materialized (
    select k.n::integer as key, s.lane_id, s.subscription_number
    from unnest(k_tenant, k_origin, k_type, k_wildcard, k_major) with ordinality
      k(tenant, origin, type, wildcard, major, n)
    cross join lateral (
      select distinct x.subscription_number, x.lane_id
      from subscription_matches x
      where x.tenant_id = k.tenant and x.event_type = any (array[k.type, k.wildcard, '*'])
        and (x.schema_major is null or x.schema_major = k.major)
        and (x.origin is null or x.origin = k.origin)
    ) s
  )
  select array_agg(e.n), array_agg(m.lane_id), array_agg(m.subscription_number)
  into m_event, m_lane, m_number
  from unnest(e_key) with ordinality e(key, n)
  join m on m.key = e.key;

  perform pg_advisory_xact_lock(1398096, 1);

  base := greatest(
    (extract(epoch from clock_timestamp()) * 1000000)::bigint,
    coalesce(pg_sequence_last_value('arrival_sequence'), 0) + 1);
  perform setval('arrival_sequence', base + event_count - 1);

  loop
    begin
      if p_careful then
        ${insertEvents}
        on conflict do nothing;
      else
        ${insertEvents};
      end if;
      get diagnostics stored_count = row_count;
      exit;
    exception when unique_violation then
      p_careful := true;
    end;
  end loop;

  if m_event is null or stored_count = 0 then
    return;
  end if;

  if stored_count < event_count then
    -- Some events were known already: keep the matches of those that carry this batch's sequence.
    select array_agg(m.event), array_agg(m.lane), array_agg(m.number)
    into m_event, m_lane, m_number
    from unnest(m_event, m_lane, m_number) m(event, lane, number)
    cross join lateral (
      select i.seq from event_inbox i
      where i.tenant_id = k_tenant[e_key[m.event]] and i.ce_id = e_id[m.event]
      limit 1
    ) i
    where i.seq = base + m.event - 1;
    if m_event is null then
      return;
    end if;
  end if;

  insert into deliveries (lane_id, seq, subscription_number, tenant_id, ce_id)
  select m.lane, base + m.event - 1, m.number, k_tenant[e_key[m.event]], e_id[m.event]
  from unnest(m_event, m_lane, m_number) m(event, lane, number);
  get diagnostics delivery_count = row_count;

  insert into batch_log (seq_to, seq_from, lanes)
  select base + event_count - 1, base, array_agg(distinct lane) from unnest(m_lane) lane;
  perform pg_notify('hub_ingested', (base + event_count - 1)::text);
end $$;

-- Creates this week's partitions for the sequence that the next event will get.
create function ensure_arrival_week() returns void language sql as $$
  select ensure_week((greatest(
    (extract(epoch from clock_timestamp()) * 1000000)::bigint,
    coalesce(pg_sequence_last_value('arrival_sequence'), 0) + 1) / 604800000000)::integer)
$$;
`;
