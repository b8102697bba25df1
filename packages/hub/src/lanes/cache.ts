import type { Subscription } from '../subscriptions/index.ts';

/** Where the dispatcher reads subscriptions from. */
export interface SubscriptionSource {
  byNumber(numbers: readonly number[]): Promise<readonly Subscription[]>;
  changedSince(version: number): Promise<readonly Subscription[]>;
}

/** Current configuration of the subscriptions that have work here. Changes apply to the next attempt. */
export class SubscriptionCache {
  readonly #source: SubscriptionSource;
  readonly #byNumber = new Map<number, Subscription>();
  #version = 0;

  constructor(source: SubscriptionSource) {
    this.#source = source;
  }

  /** From here on `refresh` reports changes. Called before anything is loaded. */
  startFrom(version: number): void {
    this.#version = Math.max(this.#version, version);
  }

  get(number: number): Subscription | undefined {
    return this.#byNumber.get(number);
  }

  /** Loads those not known yet. */
  async ensure(numbers: Iterable<number>): Promise<void> {
    const missing = [...new Set(numbers)].filter((number) => !this.#byNumber.has(number));
    if (missing.length > 0) this.#keep(await this.#source.byNumber(missing));
  }

  /** Takes over what has changed; answers the changed ones with what was known before, if anything was. */
  async refresh(): Promise<{ before: Subscription | undefined; after: Subscription }[]> {
    const changed: { before: Subscription | undefined; after: Subscription }[] = [];
    for (const after of await this.#source.changedSince(this.#version)) {
      this.#version = Math.max(this.#version, after.version);
      const before = this.#byNumber.get(after.number);
      if (before && before.version >= after.version) continue;
      if (before) this.#byNumber.set(after.number, after);
      changed.push({ before, after });
    }
    return changed;
  }

  #keep(subscriptions: readonly Subscription[]): void {
    for (const subscription of subscriptions) {
      const known = this.#byNumber.get(subscription.number);
      if (!known || known.version <= subscription.version)
        this.#byNumber.set(subscription.number, subscription);
    }
  }
}

/** May this subscription's events be sent now? */
export function verdictOn(subscription: Subscription | undefined): 'send' | 'park' | 'cancel' {
  if (!subscription || subscription.deleted) return 'cancel';
  return subscription.enabled && subscription.verification_state === 'active' ? 'send' : 'park';
}
