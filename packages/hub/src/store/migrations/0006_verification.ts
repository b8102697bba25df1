/**
 * Probes of destinations. A claim says that some process is at it, or when to try again after a
 * failure of the hub itself; it is a row of its own because every write to `subscriptions` is a new
 * version for all dispatchers.
 */
export const verification = /* sql */ `
alter table subscriptions add column allowed_rate_per_minute integer;

create index subscriptions_pending on subscriptions (number)
  where verification_state = 'pending' and deleted_at is null;

create table probe_claims (
  subscription_number integer primary key references subscriptions (number),
  claimed_until       timestamptz not null
);
`;
