import { randomBytes } from 'node:crypto';
import { createTestDatabase, type TestDatabase } from '@streaming-hub/testkit';
import { createKeyring, type Keyring, localKeyProvider } from '../keys/index.ts';
import type { Prober, SampleSink } from './index.ts';
import { createSubscriptions, type Subscriptions } from './index.ts';
import type { Subscription } from './types.ts';

/** A sink whose answers a test scripts; it remembers what it was asked. */
export class ScriptedSink implements Prober, SampleSink {
  readonly probes: { subscription: Subscription; secrets: readonly string[] }[] = [];
  answer: (
    subscription: Subscription,
    signal: AbortSignal,
  ) => Promise<{ verified: boolean; reason: string }> | never = async () => ({
    verified: true,
    reason: 'The receiver returned the challenge.',
  });

  async probe(subscription: Subscription, secrets: readonly string[], signal: AbortSignal) {
    this.probes.push({ subscription, secrets });
    return { allowed_rate_per_minute: null, ...(await this.answer(subscription, signal)) };
  }

  readonly attempt: SampleSink['attempt'] = async () => ({
    outcome: 'delivered',
    status: 204,
    error: null,
    response_excerpt: null,
    timings: { dns_ms: null, connect_ms: 1, tls_ms: null, first_byte_ms: 2, total_ms: 3 },
  });
}

export interface SubscriptionsFixture {
  readonly database: TestDatabase;
  readonly keys: Keyring;
  readonly sink: ScriptedSink;
  readonly subscriptions: Subscriptions;
  /** Another process on the same database. */
  another(): { subscriptions: Subscriptions; sink: ScriptedSink };
  close(): Promise<void>;
}

export const testKek = () => ({ id: randomBytes(8).toString('hex'), key: randomBytes(32) });

/** Subscriptions on a database of their own; hosts under `.refused` stand for what the egress guard refuses. */
export async function openSubscriptions(): Promise<SubscriptionsFixture> {
  const database = await createTestDatabase();
  const kek = testKek();
  const guard = {
    checkUrl: (url: string) =>
      URL.parse(url)?.hostname.endsWith('.refused') === false
        ? ({ ok: true } as const)
        : ({ ok: false, message: 'The URL is refused.' } as const),
  };
  const log = { info() {}, error() {} };
  const make = () => {
    const sink = new ScriptedSink();
    const keys = createKeyring(database.pool, localKeyProvider([kek]));
    const subscriptions = createSubscriptions({
      pool: database.pool,
      keys,
      guard,
      sinks: { webhook: sink },
      type_prefix: 'studio.lerian.',
      log,
      poll_ms: 50,
    });
    return { sink, keys, subscriptions };
  };
  const first = make();
  return { database, ...first, another: make, close: () => database.drop() };
}
