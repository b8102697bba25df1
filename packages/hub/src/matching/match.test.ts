import { expect, test } from 'vitest';
import { explainMatch, type MatchedEvent, type MatchedSubscription } from './index.ts';

const event: MatchedEvent = {
  sequence: Date.UTC(2026, 10, 30) * 1000,
  origin: 'ledger',
  event_type: 'account.created',
  attributes: { schemaversion: '2.0.1' },
};
const subscription: MatchedSubscription = {
  event_types: ['account.*'],
  schema_major: 2,
  origin: 'ledger',
  enabled: true,
  verification_state: 'active',
  created_at: new Date(Date.UTC(2026, 10, 1)),
  deleted: false,
};

test('a subscription that asks for it matches', () => {
  expect(explainMatch(event, subscription)).toEqual({ matched: true });
  expect(explainMatch(event, { ...subscription, schema_major: null, origin: null })).toEqual({
    matched: true,
  });
});

test.each([
  [{ event_types: ['ledger.*'] }, 'event_type', 'it wants ledger.*, the event is account.created'],
  [{ schema_major: 1 }, 'schema_major', 'it wants schema major 1, the event has 2'],
  [{ origin: 'crm' }, 'origin', 'it wants events from crm, this one is from ledger'],
  [
    { created_at: new Date(Date.UTC(2026, 11, 1)) },
    'created_later',
    'it was created at 2026-12-01T00:00:00.000Z, after the event arrived',
  ],
  [{ enabled: false }, 'disabled', 'it is disabled'],
  [{ deleted: true }, 'disabled', 'it has been deleted'],
  [{ verification_state: 'failed' }, 'unverified', 'its verification is failed'],
] as const)('%o is explained as %s', (change, reason, detail) => {
  expect(explainMatch(event, { ...subscription, ...change })).toEqual({
    matched: false,
    reason,
    detail,
  });
});

test('what it asks for is named before the switches', () => {
  const all = {
    ...subscription,
    event_types: [],
    enabled: false,
    verification_state: 'pending',
  } as const;
  expect(explainMatch(event, all)).toMatchObject({ reason: 'event_type' });
});
