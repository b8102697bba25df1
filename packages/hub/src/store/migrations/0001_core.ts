/**
 * The core tables: an event is stored once, a delivery is one appended row, and what was tried is
 * a log. Only `lanes`, `retries` and the cold tables are ever updated.
 *
 * Sequence numbers are microseconds since the Unix epoch (or the last one + 1), drawn under one
 * advisory lock, so partitions by sequence have date bounds. A week is 604 800 s counted from the
 * epoch; partitions are named after its number. Identifiers of the tables:
 *   delivery = (lane_id, seq, subscription_number); its public id packs the three into a UUIDv7.
 */
export const core = /* sql */ `
create table lanes (
  id              integer generated always as identity primary key,
  tenant_id       text not null,
  kind            text not null,
  address         text not null,
  shard           smallint not null generated always as (id % 64) stored,
  settled_through bigint not null default 0,
  unique (tenant_id, kind, address)
) with (fillfactor = 50);
create index lanes_shard on lanes (shard);

create table shards (
  shard       smallint primary key,
  owner       uuid,
  token       bigint not null default 0,
  lease_until timestamptz not null default '-infinity'
) with (fillfactor = 50);
insert into shards (shard) select generate_series(0, 63);

create table processes (
  id           uuid primary key,
  role         text not null,
  heartbeat_at timestamptz not null
);

create sequence subscription_version;

create table subscriptions (
  id                     uuid primary key,
  number                 integer generated always as identity unique,
  tenant_id              text not null,
  name                   text,
  kind                   text not null,
  enabled                boolean not null default true,
  verification_state     text not null default 'pending' check (verification_state in ('pending', 'active', 'failed')),
  verification_reason    text,
  verified_at            timestamptz,
  destination            json not null,
  lane_id                integer not null references lanes (id),
  event_types            text[] not null,
  schema_major           integer,
  origin                 text,
  format                 text not null,
  ordering               text not null,
  hold_seconds           integer,
  max_in_flight          integer not null,
  retry_schedule_seconds double precision[],
  verification_method    text not null,
  disabled_reason        text,
  deleted_at             timestamptz,
  version                bigint not null default 0,
  created_at             timestamptz not null default now(),
  updated_at             timestamptz not null default now()
);
create index subscriptions_tenant on subscriptions (tenant_id, id);
create index subscriptions_lane on subscriptions (lane_id);
create index subscriptions_version on subscriptions (version);

-- What matching reads: one row per (subscription, event type) that may receive events now.
create table subscription_matches (
  tenant_id           text not null,
  event_type          text not null,
  subscription_number integer not null,
  lane_id             integer not null,
  schema_major        integer,
  origin              text,
  primary key (tenant_id, event_type, subscription_number)
);
create index subscription_matches_number on subscription_matches (subscription_number);

-- Versions are drawn under a lock held to commit, so a reader that remembers the highest version it
-- has seen never misses a change that commits later with a lower number.
create function subscription_before_write() returns trigger language plpgsql as $$
begin
  perform pg_advisory_xact_lock(1398096, 2);
  new.version := nextval('subscription_version');
  new.updated_at := now();
  return new;
end $$;
create trigger subscription_before_write before insert or update on subscriptions
  for each row execute function subscription_before_write();

create function subscription_after_write() returns trigger language plpgsql as $$
begin
  delete from subscription_matches where subscription_number = new.number;
  if new.enabled and new.verification_state = 'active' and new.deleted_at is null then
    insert into subscription_matches
    select new.tenant_id, t, new.number, new.lane_id, new.schema_major, new.origin
    from unnest(new.event_types) t
    on conflict do nothing;
  end if;
  perform pg_notify('hub_subscriptions', '');
  return null;
end $$;
create trigger subscription_after_write after insert or update on subscriptions
  for each row execute function subscription_after_write();

-- Signing secrets: versions, sealed with the tenant's data key; the data key is wrapped by a key-encryption key.
create table tenant_keys (
  tenant_id  text not null,
  id         integer not null,
  kek_id     text not null,
  wrapped    bytea not null,
  created_at timestamptz not null default now(),
  primary key (tenant_id, id)
);
create table secrets (
  subscription_id uuid not null references subscriptions (id),
  version         integer not null,
  tenant_id       text not null,
  key_id          integer not null,
  sealed          bytea not null,
  created_at      timestamptz not null default now(),
  expires_at      timestamptz,
  primary key (subscription_id, version)
);

create table event_inbox (
  tenant_id   text not null,
  ce_id       uuid not null,
  seq         bigint not null,
  origin      text not null,
  event_type  text not null,
  attributes  json not null,
  body        bytea,
  received_at timestamptz not null default now(),
  primary key (tenant_id, ce_id)
) partition by range (ce_id);
create index event_inbox_seq on event_inbox (tenant_id, seq);

create table deliveries (
  lane_id             integer not null,
  seq                 bigint not null,
  subscription_number integer not null,
  tenant_id           text not null,
  ce_id               uuid not null,
  primary key (lane_id, seq, subscription_number)
) partition by range (seq);

-- One row per ingest transaction that made deliveries: the lanes it touched. Owners follow it with a cursor.
create table batch_log (
  seq_to     bigint primary key,
  seq_from   bigint not null,
  lanes      integer[] not null,
  created_at timestamptz not null default now()
);

-- Deliveries that failed, wait or are parked. state: scheduled | parked.
create table retries (
  lane_id             integer not null,
  seq                 bigint not null,
  subscription_number integer not null,
  tenant_id           text not null,
  ce_id               uuid not null,
  shard               smallint not null,
  state               text not null default 'scheduled' check (state in ('scheduled', 'parked')),
  attempts            integer not null,
  attempts_before     integer not null default 0,
  due_at              timestamptz not null,
  first_failed_at     timestamptz,
  reason              text,
  replay_id           uuid,
  primary key (lane_id, seq, subscription_number)
);
create index retries_due on retries (shard, due_at) where state = 'scheduled';
create index retries_parked on retries (subscription_number) where state = 'parked';

create table delivery_attempts (
  lane_id             integer not null,
  seq                 bigint not null,
  subscription_number integer not null,
  tenant_id           text not null,
  attempt             integer not null,
  delivery_attempt_id uuid not null,
  started_at          timestamptz not null,
  duration_us         integer not null,
  outcome             text not null,
  final               boolean not null,
  status              smallint,
  error_code          text,
  error_message       text,
  response_excerpt    text,
  dns_us              integer,
  connect_us          integer,
  tls_us              integer,
  first_byte_us       integer
) partition by range (started_at);
create index delivery_attempts_delivery on delivery_attempts (lane_id, seq);

create table dead_letters (
  lane_id             integer not null,
  seq                 bigint not null,
  subscription_number integer not null,
  tenant_id           text not null,
  ce_id               uuid not null,
  reason              text not null,
  attempts            integer not null,
  last_status         smallint,
  last_error          text,
  dead_at             timestamptz not null default now(),
  redriven_at         timestamptz,
  primary key (lane_id, seq, subscription_number)
) partition by range (seq);
create index dead_letters_tenant on dead_letters (tenant_id, dead_at, seq);

-- Deliveries that may have been in flight when a process died without releasing its shards.
create table suspects (
  lane_id             integer not null,
  seq                 bigint not null,
  subscription_number integer not null,
  shard               smallint not null,
  crashes             integer not null,
  started             boolean not null default false,
  primary key (lane_id, seq, subscription_number)
);

create table quarantine (
  id            uuid primary key,
  topic         text not null,
  partition     integer not null,
  record_offset bigint not null,
  reason        text not null,
  detail        text not null,
  headers       json not null,
  value         bytea,
  received_at   timestamptz not null default now(),
  unique (topic, partition, record_offset)
);

-- The truth about what has been ingested; the group's committed offsets only follow.
create table stream_positions (
  topic       text not null,
  partition   integer not null,
  next_offset bigint not null,
  updated_at  timestamptz not null default now(),
  primary key (topic, partition)
) with (fillfactor = 50);

create table api_keys (
  id          uuid primary key,
  tenant_id   text not null,
  hash        bytea not null unique,
  permission  text not null check (permission in ('read', 'write', 'admin', 'operator')),
  created_at  timestamptz not null default now(),
  last_used_at timestamptz,
  revoked_at  timestamptz
);

create function uuid_week_bound(week integer) returns uuid language sql immutable as $$
  select (lpad(to_hex(week::bigint * 604800000), 12, '0') || '00000000000000000000')::uuid
$$;

-- Makes a partition apart and attaches it: "create table … partition of" would lock the parent against
-- every reader and writer, and would wait (with all of them queued behind it) for the oldest transaction.
create function ensure_partition(parent text, week integer, bound_from text, bound_to text) returns void language plpgsql as $$
declare
  name text := format('%s_w%s', parent, week);
  home oid := (select relnamespace from pg_class where oid = parent::regclass);
begin
  if exists (select from pg_class where relname = name and relnamespace = home) then
    return;
  end if;
  perform pg_advisory_xact_lock(1398096, 3);
  -- Asked of the table, because to_regclass may answer from a cache older than the lock.
  if exists (select from pg_class where relname = name and relnamespace = home) then
    return;
  end if;
  execute format('create table %I (like %I including all)', name, parent);
  execute format('alter table %I attach partition %I for values from (%L) to (%L)', parent, name, bound_from, bound_to);
end $$;

-- Creates the inbox partition of one week; safe from several processes at once.
create function ensure_inbox_week(week integer) returns void language plpgsql as $$
begin
  perform ensure_partition('event_inbox', week, uuid_week_bound(week)::text, uuid_week_bound(week + 1)::text);
end $$;

-- Creates every partition of one week.
create function ensure_week(week integer) returns void language plpgsql as $$
declare
  from_us bigint := week::bigint * 604800000000;
  to_us   bigint := (week::bigint + 1) * 604800000000;
begin
  perform ensure_inbox_week(week);
  perform ensure_partition('deliveries', week, from_us::text, to_us::text);
  perform ensure_partition('dead_letters', week, from_us::text, to_us::text);
  perform ensure_partition('delivery_attempts', week, to_timestamp(from_us / 1000000)::text, to_timestamp(to_us / 1000000)::text);
end $$;
`;
