/**
 * What listing deliveries needs. A subscription whose address changes moves to another lane and
 * leaves its earlier deliveries where they are: `subscription_lanes` remembers every lane it had.
 */
export const deliveries = /* sql */ `
create table subscription_lanes (
  subscription_number integer not null,
  lane_id             integer not null,
  primary key (subscription_number, lane_id)
);
insert into subscription_lanes select number, lane_id from subscriptions;

create function subscription_lane_after_write() returns trigger language plpgsql as $$
begin
  insert into subscription_lanes values (new.number, new.lane_id) on conflict do nothing;
  return null;
end $$;
create trigger subscription_lane_after_write after insert or update of lane_id on subscriptions
  for each row execute function subscription_lane_after_write();

create index dead_letters_subscription on dead_letters (subscription_number, seq);
`;
