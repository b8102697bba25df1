import { expect, test } from 'vitest';
import type { Subscription } from '../subscriptions/index.ts';
import { SubscriptionCache, verdictOn } from './cache.ts';

const version = (number: number, of: number, enabled: boolean): Subscription =>
  ({ number, version: of, enabled, verification_state: 'active' }) as Subscription;

/** A database that answers with what it holds when it is asked, some time later. */
function slowSource() {
  let stored: Subscription[] = [];
  const answers: (() => void)[] = [];
  const later = (answer: readonly Subscription[]) =>
    new Promise<readonly Subscription[]>((resolve) => answers.push(() => resolve(answer)));
  return {
    store: (...subscriptions: Subscription[]) => (stored = subscriptions),
    answer: () => answers.shift()?.(),
    byNumber: (numbers: readonly number[]) =>
      later(stored.filter((one) => numbers.includes(one.number))),
    changedSince: (since: number) => later(stored.filter((one) => one.version > since)),
  };
}

test('a subscription read before the start was taken for switched off for ever', async () => {
  const source = slowSource();
  const cache = new SubscriptionCache(source, async () => () => {});
  source.store(version(1, 7, false));
  const early = cache.refresh();
  source.store(version(1, 8, true));
  cache.startFrom(8);
  source.answer();
  await early;
  const loaded = cache.ensure([1]);
  source.answer();
  await loaded;
  expect(verdictOn(cache.get(1))).toBe('send');
});

test('a first look that is overtaken by a change does not bring back what was before', async () => {
  const source = slowSource();
  const cache = new SubscriptionCache(source, async () => () => {});
  cache.startFrom(6);
  source.store(version(1, 7, false));
  const first = cache.ensure([1]);
  source.store(version(1, 8, true));
  const refreshed = cache.refresh();
  source.answer();
  source.answer();
  await Promise.all([first, refreshed]);
  expect(cache.get(1)?.version).toBe(8);
});
