import type pg from 'pg';
import { isUuid, type SubscriptionRow, subscriptionColumns, subscriptionOf } from './rows.ts';
import type { Subscription } from './types.ts';

/** A subscription to be probed, with its destination as stored, which fences the result. */
export interface ProbeTarget {
  readonly subscription: Subscription;
  readonly destination_text: string;
}

type TargetRow = SubscriptionRow & { readonly destination_text: string };

const targetColumns = /* sql */ `${subscriptionColumns}, destination::text as destination_text`;

function targetOf({ destination_text, ...row }: TargetRow): ProbeTarget {
  return { subscription: subscriptionOf(row), destination_text };
}

export interface ClaimOptions {
  readonly limit: number;
  readonly per_tenant: number;
  /** Tenants that have their share of probes in flight already. */
  readonly skip_tenants: readonly string[];
  /** After this, whoever comes next takes the probe over. */
  readonly lease_ms: number;
}

/**
 * Takes pending subscriptions that nobody is probing, tenants in turn. Of several processes one gets
 * each: the claims are inserted, and the second one finds the first one's row.
 */
export async function claimPending(pool: pg.Pool, options: ClaimOptions): Promise<ProbeTarget[]> {
  const found = await pool.query<TargetRow>({
    name: 'claim-pending-probes',
    text: /* sql */ `
      with pending as (
        select s.number, row_number() over (partition by s.tenant_id order by s.number) as turn
        from subscriptions s left join probe_claims c on c.subscription_number = s.number
        where s.verification_state = 'pending' and s.deleted_at is null
          and not s.tenant_id = any($2::text[]) and (c.claimed_until is null or c.claimed_until < now())
      ), claimed as (
        insert into probe_claims (subscription_number, claimed_until)
        select number, now() + $4 * interval '1 millisecond' from pending
        where turn <= $3 order by turn, number limit $1
        on conflict (subscription_number) do update set claimed_until = excluded.claimed_until
          where probe_claims.claimed_until < now()
        returning subscription_number
      )
      select ${targetColumns} from subscriptions join claimed on number = subscription_number order by number`,
    values: [options.limit, options.skip_tenants, options.per_tenant, options.lease_ms],
  });
  return found.rows.map(targetOf);
}

/** Puts a probe off after a failure of the hub itself; nobody tries before. */
export async function putOff(pool: pg.Pool, number: number, wait_ms: number): Promise<void> {
  await pool.query(
    /* sql */ `
    update probe_claims set claimed_until = now() + $2 * interval '1 millisecond' where subscription_number = $1`,
    [number, wait_ms],
  );
}

export async function readTarget(
  pool: pg.Pool,
  tenant_id: string,
  id: string,
): Promise<ProbeTarget | null> {
  if (!isUuid(id)) return null;
  const found = await pool.query<TargetRow>(
    /* sql */ `select ${targetColumns} from subscriptions where id = $1 and tenant_id = $2 and deleted_at is null`,
    [id, tenant_id],
  );
  const row = found.rows[0];
  return row ? targetOf(row) : null;
}

export interface ProbeOutcome {
  readonly verified: boolean;
  readonly reason: string;
  readonly allowed_rate_per_minute: number | null;
  /** Asked for by the owner: a pass also switches on what the hub had switched off. */
  readonly on_request: boolean;
}

/**
 * Records what a probe found, unless the destination has changed meanwhile: then it says nothing
 * about the new one. A failed probe does not take a proven destination away.
 * Returns whether it was recorded.
 */
export async function recordProbe(
  pool: pg.Pool,
  target: ProbeTarget,
  outcome: ProbeOutcome,
): Promise<boolean> {
  const { number, verification_method } = target.subscription;
  const written = await pool.query(
    /* sql */ `
    with finished as (delete from probe_claims where subscription_number = $1)
    update subscriptions set
      verification_state = case when $4 then 'active' when verification_state = 'active' then 'active' else 'failed' end,
      verification_reason = case when not $4 and verification_state = 'active'
        then 'Still active from an earlier probe, but the last one failed: ' || $5 else $5 end,
      verified_at = case when $4 then now() else verified_at end,
      allowed_rate_per_minute = case when $4 then $6::integer else allowed_rate_per_minute end,
      enabled = enabled or ($4 and $7 and disabled_reason is not null),
      disabled_reason = case when $4 and $7 then null else disabled_reason end
    where number = $1 and deleted_at is null and destination::text = $2 and verification_method = $3`,
    [
      number,
      target.destination_text,
      verification_method,
      outcome.verified,
      outcome.reason,
      outcome.allowed_rate_per_minute,
      outcome.on_request,
    ],
  );
  return written.rowCount === 1;
}
