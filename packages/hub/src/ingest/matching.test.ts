import { createTestDatabase, type TestDatabase } from '@streaming-hub/testkit';
import fc from 'fast-check';
import { uuidv7 } from 'uuidv7';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { explainMatch, type MismatchReason } from '../matching/index.ts';
import {
  attributesOf,
  batchOf,
  countOf,
  handlerOn,
  recordsFrom,
  rowsOf,
  type SubscriptionParts,
  subscribe,
} from './testing.ts';

let db: TestDatabase;

beforeEach(async () => {
  db = await createTestDatabase();
});
afterEach(() => db.drop());

/** Against `account.created` of midaz, schema 2.1.0, tenant-a. */
const table: [
  name: string,
  parts: SubscriptionParts,
  deliveries: number,
  reason: MismatchReason | 'tenant' | null,
][] = [
  ['exact type', { event_types: ['account.created'] }, 1, null],
  ['wildcard of the resource', { event_types: ['account.*'] }, 1, null],
  ['star', { event_types: ['*'] }, 1, null],
  [
    'several patterns that all match',
    { event_types: ['account.created', 'account.*', '*'] },
    1,
    null,
  ],
  ['one of several', { event_types: ['ledger.created', 'account.created'] }, 1, null],
  ['other event', { event_types: ['account.updated'] }, 0, 'event_type'],
  ['other resource', { event_types: ['accounts.*', 'ledger.*'] }, 0, 'event_type'],
  ['no types', { event_types: [] }, 0, 'event_type'],
  ['major pinned, fits', { schema_major: 2 }, 1, null],
  ['major pinned, does not fit', { schema_major: 1 }, 0, 'schema_major'],
  ['origin pinned, fits', { origin: 'midaz' }, 1, null],
  ['origin pinned, does not fit', { origin: 'tracer' }, 0, 'origin'],
  ['disabled', { enabled: false }, 0, 'disabled'],
  ['pending', { verification_state: 'pending' }, 0, 'unverified'],
  ['failed', { verification_state: 'failed' }, 0, 'unverified'],
  ['other tenant', { tenant_id: 'tenant-b' }, 0, 'tenant'],
];

describe('one subscription', () => {
  test.each(table)('%s', async (_name, parts, deliveries, reason) => {
    const { number } = await subscribe(db.pool, parts);
    const attributes = attributesOf({ schemaversion: '2.1.0' });
    await handlerOn(db.pool).onBatch(batchOf(recordsFrom(0, [{ attributes }])));
    expect(await countOf(db.pool, 'deliveries')).toBe(deliveries);
    if (reason === 'tenant') return;
    const explained = explainMatch(await storedEvent(), await subscription(number));
    expect(explained.matched ? null : explained.reason).toBe(reason);
  });
});

async function storedEvent() {
  const rows = await rowsOf<{
    seq: number;
    origin: string;
    event_type: string;
    attributes: Record<string, string>;
  }>(db.pool, 'select seq, origin, event_type, attributes from event_inbox');
  const row = rows[0];
  if (row === undefined) throw new Error('no event');
  return { ...row, sequence: row.seq };
}

async function subscription(number: number) {
  const rows = await rowsOf<Parameters<typeof explainMatch>[1]>(
    db.pool,
    'select event_types, schema_major, origin, enabled, verification_state, created_at, deleted_at is not null as deleted from subscriptions where number = $1',
    [number],
  );
  const row = rows[0];
  if (row === undefined) throw new Error('no subscription');
  return row;
}

test('a subscription made after the event is explained so, and so is a deleted one', async () => {
  await handlerOn(db.pool).onBatch(batchOf(recordsFrom(0, [{}])));
  const { number } = await subscribe(db.pool);
  const later = explainMatch(await storedEvent(), await subscription(number));
  expect(later).toMatchObject({ matched: false, reason: 'created_later' });
  const deleted = explainMatch(await storedEvent(), {
    ...(await subscription(number)),
    created_at: new Date(0),
    deleted: true,
  });
  expect(deleted).toMatchObject({
    matched: false,
    reason: 'disabled',
    detail: 'it has been deleted',
  });
});

test('lanes of a batch are listed once each, shared lanes too', async () => {
  const one = await subscribe(db.pool, { address: 'https://a.example' });
  await subscribe(db.pool, { address: 'https://a.example', event_types: ['account.*'] });
  const three = await subscribe(db.pool);
  await handlerOn(db.pool).onBatch(batchOf(recordsFrom(0, [{}, {}, {}])));
  expect(await countOf(db.pool, 'deliveries')).toBe(9);
  const rows = await rowsOf<{ lanes: number[] }>(db.pool, 'select lanes from batch_log');
  expect(rows).toEqual([{ lanes: [one.lane_id, three.lane_id].sort((a, b) => a - b) }]);
});

test('dispatchers are told once per transaction that made deliveries, up to which sequence', async () => {
  await subscribe(db.pool);
  const listener = await db.pool.connect();
  const heard: (string | undefined)[] = [];
  listener.on('notification', (message) => heard.push(message.payload));
  await listener.query('listen hub_ingested');
  const { onBatch } = handlerOn(db.pool);
  await onBatch(batchOf(recordsFrom(0, [{}, {}])));
  await onBatch(batchOf(recordsFrom(2, [{ attributes: { tenantid: 'nobody' } }])));
  await onBatch(batchOf(recordsFrom(3, [{}])));
  await listener.query('select 1');
  listener.release(true);
  const stored = await db.pool.query<{ seq: number }>(
    'select seq_to as seq from batch_log order by 1',
  );
  expect(heard).toEqual(stored.rows.map((row) => String(row.seq)));
  expect(heard.length).toBe(2);
});

test('the statement and the explanation agree on any mix of events and subscriptions', async () => {
  const tenant = fc.constantFrom('tenant-a', 'tenant-b');
  const origin = fc.constantFrom('midaz', 'tracer');
  const patterns = [
    'account.created',
    'account.updated',
    'account.*',
    'ledger.created',
    'ledger.*',
    '*',
  ];
  const subscriptions = fc.array(
    fc.record({
      tenant_id: tenant,
      event_types: fc.subarray(patterns, { minLength: 1 }),
      schema_major: fc.constantFrom(null, 1, 2),
      origin: fc.option(origin),
      enabled: fc.boolean(),
      verification_state: fc.constantFrom('active', 'active', 'pending'),
    }),
    { maxLength: 8 },
  );
  const events = fc.array(
    fc.record({
      tenantid: tenant,
      source: origin,
      resourcetype: fc.constantFrom('account', 'ledger'),
      eventtype: fc.constantFrom('created', 'updated'),
      schemaversion: fc.constantFrom('1.0.0', '2.3.1'),
    }),
    { minLength: 1, maxLength: 12 },
  );
  await fc.assert(
    fc.asyncProperty(subscriptions, events, async (wanted, sent) => {
      await db.pool.query(
        'truncate event_inbox, deliveries, batch_log, ingested_batches, subscriptions, lanes restart identity cascade',
      );
      await db.pool.query('delete from subscription_matches');
      const made: (Parameters<typeof asSubscription>[0] & Made)[] = [];
      for (const parts of wanted) made.push({ ...parts, ...(await subscribe(db.pool, parts)) });
      const all = sent.map((attributes) => attributesOf({ ...attributes, id: uuidv7() }));
      await handlerOn(db.pool).onBatch(
        batchOf(
          recordsFrom(
            0,
            all.map((attributes) => ({ attributes })),
          ),
        ),
      );
      const expected = all.flatMap((attributes) =>
        made
          .filter((subscription) => subscription.tenant_id === attributes['tenantid'])
          .filter(
            (subscription) =>
              explainMatch(asEvent(attributes), asSubscription(subscription)).matched,
          )
          .map(
            (subscription) => `${attributes['id']}/${subscription.number}/${subscription.lane_id}`,
          ),
      );
      const rows = await rowsOf<{ ce_id: string; subscription_number: number; lane_id: number }>(
        db.pool,
        'select ce_id, subscription_number, lane_id from deliveries',
      );
      const actual = rows.map((row) => `${row.ce_id}/${row.subscription_number}/${row.lane_id}`);
      expect(actual.sort()).toEqual(expected.sort());
    }),
    { numRuns: 40 },
  );
});

interface Made {
  tenant_id: string;
  number: number;
  lane_id: number;
}

function asEvent(attributes: Readonly<Record<string, string>>) {
  return {
    attributes,
    sequence: Date.now() * 1000,
    origin: attributes['source'] ?? '',
    event_type: `${attributes['resourcetype']}.${attributes['eventtype']}`,
  };
}

function asSubscription(parts: {
  event_types: string[];
  schema_major: number | null;
  origin: string | null;
  enabled: boolean;
  verification_state: string;
}): Parameters<typeof explainMatch>[1] {
  const state = parts.verification_state === 'active' ? 'active' : 'pending';
  return { ...parts, verification_state: state, created_at: new Date(0), deleted: false };
}
