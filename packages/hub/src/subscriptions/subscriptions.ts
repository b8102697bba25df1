import type pg from 'pg';
import type { Clock } from '../base/index.ts';
import type { Keyring } from '../keys/index.ts';
import type { UrlGuard } from './rules.ts';
import { createSecretStore, type SecretStore } from './secrets.ts';
import { createSubscriptionStore, type SubscriptionStore } from './store.ts';
import { createTester, type SampleAttempt, type SampleSink } from './tester.ts';
import type { DestinationKind, Subscription } from './types.ts';
import { createVerifier, type Prober, type Verifier, type VerifierLog } from './verifier.ts';

export interface SubscriptionsOptions {
  readonly pool: pg.Pool;
  readonly keys: Keyring;
  readonly guard: UrlGuard;
  readonly sinks: Readonly<Record<DestinationKind, Prober & SampleSink>>;
  readonly type_prefix: string;
  readonly log: VerifierLog;
  readonly clock?: Clock;
  readonly probe_timeout_ms?: number;
  readonly poll_ms?: number;
}

/** Everything about subscriptions that others use; the verifier has to be started. */
export interface Subscriptions {
  readonly store: SubscriptionStore;
  readonly secrets: SecretStore;
  readonly verifier: Verifier;
  /** Sends one signed sample event; nothing is stored. */
  readonly test: (subscription: Subscription, signal: AbortSignal) => Promise<SampleAttempt>;
}

export function createSubscriptions(options: SubscriptionsOptions): Subscriptions {
  const { pool, sinks, clock } = options;
  const secrets = createSecretStore(pool, options.keys, clock);
  return {
    secrets,
    store: createSubscriptionStore({ pool, guard: options.guard, secrets }),
    verifier: createVerifier({ ...options, secrets, probers: sinks }),
    test: createTester({
      secrets,
      sinks,
      type_prefix: options.type_prefix,
      ...(clock ? { clock } : {}),
    }),
  };
}
