/**
 * What is written after an attempt that was not a plain success, and the return of parked work.
 *
 * record_changes takes one JSON array and does all of it in one transaction. A row whose shard token
 * is no longer the current one comes from an owner that has been replaced: its attempt is kept
 * as history, but what happens next belongs to the new owner, so nothing else is written for it.
 * Returns the positions (from 0) in the array that were not applied.
 */
export const outcomes = /* sql */ `
create or replace function subscription_after_write() returns trigger language plpgsql as $$
begin
  delete from subscription_matches where subscription_number = new.number;
  if new.enabled and new.verification_state = 'active' and new.deleted_at is null then
    insert into subscription_matches
    select new.tenant_id, t, new.number, new.lane_id, new.schema_major, new.origin
    from unnest(new.event_types) t
    on conflict do nothing;
    update retries set state = 'scheduled', due_at = now(), reason = 'resumed'
    where subscription_number = new.number and state = 'parked';
    if found then perform pg_notify('hub_retries', ''); end if;
  elsif new.deleted_at is not null then
    update retries set state = 'scheduled', due_at = now(), reason = 'deleted'
    where subscription_number = new.number and state = 'parked';
    if found then perform pg_notify('hub_retries', ''); end if;
  end if;
  perform pg_notify('hub_subscriptions', '');
  return null;
end $$;

create index retries_resumed on retries (subscription_number, seq) where reason = 'resumed';
create index retries_resumed_shard on retries (shard, lane_id) where reason = 'resumed';

create type delivery_change as (
  ord integer, action text, lane_id integer, seq bigint, subscription_number integer, tenant_id text, ce_id uuid,
  shard smallint, token bigint, attempts integer, attempts_before integer, due_ms double precision,
  first_failed_ms double precision, reason text, replay_id uuid, last_status smallint, last_error text,
  suspect boolean, attempt json, valid boolean
);
create type attempt_record as (
  attempt integer, delivery_attempt_id uuid, started_ms double precision, duration_us integer, outcome text,
  status smallint, error_code text, error_message text, response_excerpt text, dns_us integer, connect_us integer,
  tls_us integer, first_byte_us integer
);

create function record_changes(document json) returns integer[] language plpgsql as $$
declare
  changes delivery_change[];
begin
  -- Parking holds only while the subscription really is switched off; its row is locked so that a
  -- switch back on either sees the parked rows or is seen here.
  perform 1 from subscriptions where number in (
    select c.subscription_number from json_populate_recordset(null::delivery_change, document) c where c.action = 'park')
  order by number for share;

  select array_agg(row(c.ord, c.action, c.lane_id, c.seq, c.subscription_number, c.tenant_id, c.ce_id, c.shard, c.token,
    c.attempts, c.attempts_before, c.due_ms, c.first_failed_ms, c.reason, c.replay_id, c.last_status, c.last_error,
    c.suspect, c.attempt,
    s.token = c.token and (c.action <> 'park' or exists (
      select 1 from subscriptions x
      where x.number = c.subscription_number and x.deleted_at is null
        and not (x.enabled and x.verification_state = 'active')))
    )::delivery_change)
  into changes
  from json_populate_recordset(null::delivery_change, document) c
  join shards s on s.shard = c.shard;

  insert into delivery_attempts (lane_id, seq, subscription_number, tenant_id, attempt, delivery_attempt_id, started_at,
    duration_us, outcome, final, status, error_code, error_message, response_excerpt, dns_us, connect_us, tls_us, first_byte_us)
  select c.lane_id, c.seq, c.subscription_number, c.tenant_id, a.attempt, a.delivery_attempt_id,
    to_timestamp(a.started_ms / 1000.0), a.duration_us, a.outcome,
    c.action = 'delivered' or (c.valid and c.action in ('dead', 'cancel')),
    a.status, a.error_code, a.error_message, a.response_excerpt, a.dns_us, a.connect_us, a.tls_us, a.first_byte_us
  from unnest(changes) c
  cross join lateral json_populate_record(null::attempt_record, c.attempt) a
  where c.attempt is not null;

  insert into retries (lane_id, seq, subscription_number, tenant_id, ce_id, shard, state, attempts, attempts_before,
    due_at, first_failed_at, reason, replay_id)
  select lane_id, seq, subscription_number, tenant_id, ce_id, shard,
    case action when 'park' then 'parked' else 'scheduled' end,
    attempts, attempts_before, to_timestamp(due_ms / 1000.0), to_timestamp(first_failed_ms / 1000.0), reason, replay_id
  from unnest(changes) c where valid and action in ('retry', 'park')
  on conflict (lane_id, seq, subscription_number) do update
    set state = excluded.state, attempts = excluded.attempts, attempts_before = excluded.attempts_before,
        due_at = excluded.due_at, first_failed_at = excluded.first_failed_at, reason = excluded.reason,
        replay_id = excluded.replay_id;

  delete from retries r using unnest(changes) c
  where r.lane_id = c.lane_id and r.seq = c.seq and r.subscription_number = c.subscription_number
    and (c.action = 'delivered' or (c.valid and c.action in ('dead', 'cancel')));

  insert into dead_letters (lane_id, seq, subscription_number, tenant_id, ce_id, reason, attempts, last_status, last_error)
  select lane_id, seq, subscription_number, tenant_id, ce_id, reason, attempts + attempts_before, last_status, last_error
  from unnest(changes) c where valid and action = 'dead'
  on conflict (lane_id, seq, subscription_number) do update
    set reason = excluded.reason, attempts = excluded.attempts, last_status = excluded.last_status,
        last_error = excluded.last_error, dead_at = now(), redriven_at = null;

  delete from suspects s using unnest(changes) c
  where c.suspect and s.lane_id = c.lane_id and s.seq = c.seq and s.subscription_number = c.subscription_number;

  update subscriptions set enabled = false, disabled_reason = 'gone'
  where enabled and number in (
    select subscription_number from unnest(changes) c where valid and action = 'dead' and reason = 'gone');

  return coalesce((select array_agg(ord) from unnest(changes) c where not coalesce(valid, false)), '{}');
end $$;
`;
