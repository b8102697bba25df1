import { HubError } from '@streaming-hub/contract';
import type pg from 'pg';
import { type Service, wait } from '../base/index.ts';
import { claimPending, type ProbeTarget, putOff, readTarget, recordProbe } from './probe-claims.ts';
import type { SecretStore } from './secrets.ts';
import type { DestinationKind, Subscription } from './types.ts';

/** The part of a sink that proves a destination. It answers for what a receiver does, and throws only for the hub's own failures. */
export interface Prober {
  probe(
    subscription: Subscription,
    secrets: readonly string[],
    signal: AbortSignal,
  ): Promise<{ verified: boolean; reason: string; allowed_rate_per_minute: number | null }>;
}

export interface VerifierLog {
  info(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

export interface VerifierOptions {
  readonly pool: pg.Pool;
  readonly secrets: SecretStore;
  readonly probers: Readonly<Record<DestinationKind, Prober>>;
  readonly log: VerifierLog;
  /** One probe may take as long; more than any sink's own timeout. Default 35 s. */
  readonly probe_timeout_ms?: number;
  /** How often to look for pending ones that nobody told us about. Default 5 s. */
  readonly poll_ms?: number;
}

export interface Verifier extends Service {
  /** A subscription has become pending: look now. */
  nudge(): void;
  /**
   * Probes now and waits. A pass also switches on what the hub had switched off; what the owner
   * switched off stays off.
   * @throws HubError `not_found` | `rate_limited` | `unavailable`
   */
  verify(tenant_id: string, id: string): Promise<Subscription>;
}

const limits = {
  /** Background probes in flight, per process; of one tenant, so that hanging ones leave room. */
  probes_max: 16,
  tenantProbes_max: 4,
  /** Probes that callers wait for, per process. */
  requested_max: 32,
  reason_length_max: 1_000,
};
const probe_timeout_ms_default = 35_000;
const poll_ms_default = 5_000;
const fault_wait_ms = 10_000;
/** A claim outlives the probe, so that no second process probes at the same time. */
const claim_margin_ms = 10_000;

export function createVerifier(options: VerifierOptions): Verifier {
  const { pool, secrets, probers, log } = options;
  const probe_timeout_ms = options.probe_timeout_ms ?? probe_timeout_ms_default;
  const poll_ms = options.poll_ms ?? poll_ms_default;
  const inFlight = new Map<number, { tenant_id: string; done: Promise<void> }>();
  let stopping = new AbortController();
  let running: Promise<void> | null = null;
  let rest = new AbortController();
  let nudged = false;
  let requested = 0;

  function nudge(): void {
    nudged = true;
    rest.abort();
  }

  /** Probes and records. Throws when the hub itself failed, or stops. */
  async function probe(target: ProbeTarget, on_request: boolean): Promise<void> {
    const { subscription } = target;
    const stop = stopping.signal;
    const live = await secrets.live(subscription);
    const signal = AbortSignal.any([stop, AbortSignal.timeout(probe_timeout_ms)]);
    const result = await probers[subscription.kind].probe(subscription, live, signal);
    // Cut short by our own stop, it says nothing about the receiver.
    stop.throwIfAborted();
    const reason = result.reason.slice(0, limits.reason_length_max);
    const recorded = await recordProbe(pool, target, { ...result, reason, on_request });
    log.info(
      { subscription_id: subscription.id, verified: result.verified, reason, recorded },
      recorded ? 'destination probed' : 'destination probed, but it has changed meanwhile',
    );
    if (!recorded) nudge();
  }

  async function probeInBackground(target: ProbeTarget): Promise<void> {
    const { id, number } = target.subscription;
    const stop = stopping.signal;
    try {
      await probe(target, false);
    } catch (error) {
      const cut_short = stop.aborted;
      if (!cut_short)
        log.error(
          { err: error, subscription_id: id },
          'a probe could not be made; it will be tried again',
        );
      await putOff(pool, number, cut_short ? 0 : fault_wait_ms).catch((cause: unknown) =>
        log.error(
          { err: cause, subscription_id: id },
          'a probe could not be given back; its claim runs out',
        ),
      );
    }
  }

  async function claim(): Promise<ProbeTarget[]> {
    const free = limits.probes_max - inFlight.size;
    if (free === 0) return [];
    const perTenant = Map.groupBy(inFlight.values(), (one) => one.tenant_id);
    const busy = [...perTenant].filter(([, probes]) => probes.length >= limits.tenantProbes_max);
    return claimPending(pool, {
      limit: free,
      per_tenant: limits.tenantProbes_max,
      skip_tenants: busy.map(([tenant_id]) => tenant_id),
      lease_ms: probe_timeout_ms + claim_margin_ms,
    });
  }

  function launch(target: ProbeTarget): void {
    const { number, tenant_id } = target.subscription;
    const done = probeInBackground(target).finally(() => {
      inFlight.delete(number);
      nudge();
    });
    inFlight.set(number, { tenant_id, done });
  }

  async function loop(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      nudged = false;
      rest = new AbortController();
      try {
        for (const target of await claim()) launch(target);
      } catch (error) {
        log.error({ err: error }, 'pending verifications could not be read');
      }
      if (!nudged) await wait(poll_ms, AbortSignal.any([signal, rest.signal]));
    }
    await Promise.all([...inFlight.values()].map((one) => one.done));
  }

  return {
    nudge,
    async start() {
      if (running && !stopping.signal.aborted) return;
      const before = running;
      stopping = new AbortController();
      const { signal } = stopping;
      running = Promise.resolve(before).then(() => loop(signal));
    },
    async stop() {
      stopping.abort(new Error('the hub is stopping'));
      await running;
    },
    async verify(tenant_id, id) {
      const target = await readTarget(pool, tenant_id, id);
      if (!target) throw new HubError('not_found', 'There is no subscription with this id.');
      if (requested >= limits.requested_max) {
        const headers = { 'retry-after': '1' };
        throw new HubError('rate_limited', 'Too many probes are running; try again in a second.', {
          headers,
        });
      }
      requested += 1;
      try {
        await probe(target, true);
      } catch (cause) {
        throw new HubError('unavailable', 'The hub could not make the probe; try again.', {
          cause,
        });
      } finally {
        requested -= 1;
      }
      const after = await readTarget(pool, tenant_id, id);
      if (!after) throw new HubError('not_found', 'There is no subscription with this id.');
      return after.subscription;
    },
  };
}
