import type { Subscription } from '../subscriptions/index.ts';

/** Where the dispatcher reads subscriptions from. */
export interface SubscriptionSource {
  byNumber(numbers: readonly number[]): Promise<readonly Subscription[]>;
  changedSince(version: number): Promise<readonly Subscription[]>;
}

/**
 * Looks for parked deliveries of these subscriptions that come back; calling the answer makes their
 * lanes wait for them.
 */
export type ResumedLookup = (numbers: readonly number[]) => Promise<() => void>;

/**
 * Current configuration of the subscriptions that have work here. Changes apply to the next attempt.
 *
 * A subscription that may be sent to becomes known in the same step in which its lanes learn of
 * parked deliveries that come back, looked for after its version was read: nothing newer of it
 * goes out before them.
 */
export class SubscriptionCache {
  readonly #source: SubscriptionSource;
  readonly #resumed: ResumedLookup;
  readonly #byNumber = new Map<number, Subscription>();
  /** Changes up to here have been seen; null before the first take-over. */
  #version: number | null = null;

  constructor(source: SubscriptionSource, resumed: ResumedLookup) {
    this.#source = source;
    this.#resumed = resumed;
  }

  /** From here on `refresh` sees changes. Called before anything is loaded. */
  startFrom(version: number): void {
    this.#version ??= version;
  }

  get(number: number): Subscription | undefined {
    return this.#byNumber.get(number);
  }

  /** Loads those not known yet. */
  async ensure(numbers: Iterable<number>): Promise<void> {
    const missing = [...new Set(numbers)].filter((number) => !this.#byNumber.has(number));
    if (missing.length === 0) return;
    const subscriptions = await this.#source.byNumber(missing);
    const hold = await this.#lookFor(subscriptions);
    hold();
    for (const subscription of subscriptions) this.#keep(subscription);
  }

  /** Takes over what has changed; answers the changed ones. */
  async refresh(): Promise<Subscription[]> {
    // Before the start nothing is known that could have changed. What is read now might be kept
    // after the start, older than the version started from, and never be corrected.
    if (this.#version === null) return [];
    const changed = await this.#source.changedSince(this.#version);
    const hold = await this.#lookFor(changed);
    hold();
    for (const { version } of changed) this.#version = Math.max(this.#version, version);
    // Unknown ones are kept too: a first look at one of them may be under way, with an older version.
    return changed.filter((subscription) => this.#keep(subscription));
  }

  async #lookFor(subscriptions: readonly Subscription[]): Promise<() => void> {
    const sending = subscriptions.filter((subscription) => verdictOn(subscription) === 'send');
    if (sending.length === 0) return () => {};
    return this.#resumed(sending.map((subscription) => subscription.number));
  }

  #keep(subscription: Subscription): boolean {
    const known = this.#byNumber.get(subscription.number);
    if (known && known.version >= subscription.version) return false;
    this.#byNumber.set(subscription.number, subscription);
    return true;
  }
}

/** May this subscription's events be sent now? */
export function verdictOn(subscription: Subscription | undefined): 'send' | 'park' | 'cancel' {
  if (!subscription || subscription.deleted) return 'cancel';
  return subscription.enabled && subscription.verification_state === 'active' ? 'send' : 'park';
}
