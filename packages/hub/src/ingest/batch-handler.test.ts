import { createTestDatabase, type TestDatabase } from '@streaming-hub/testkit';
import { uuidv7 } from 'uuidv7';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { readEvent } from '../inbox/index.ts';
import {
  attributesOf,
  batchOf,
  countOf,
  handlerOn,
  headersOf,
  recordAt,
  recordsFrom,
  rowsOf,
  storedPosition,
  subscribe,
  topic,
} from './testing.ts';

let db: TestDatabase;

beforeEach(async () => {
  db = await createTestDatabase();
});
afterEach(() => db.drop());

test('an accepted record is stored once, byte for byte, with a delivery per match', async () => {
  const { number, lane_id } = await subscribe(db.pool);
  const { onBatch, counts } = handlerOn(db.pool);
  const attributes = attributesOf({
    subject: 'ação "1" {x},\\',
    traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
    myextension: 'kept',
  });
  const value = Buffer.from([0, 255, 128, 10, 92, 123]);

  expect(await onBatch(batchOf([recordAt(7, { attributes, value })]))).toBe(8);

  const event = await readEvent(db.pool, 'tenant-a', attributes['id'] ?? '');
  expect(event).toMatchObject({
    tenant_id: 'tenant-a',
    origin: 'midaz',
    event_type: 'account.created',
    body: value,
  });
  expect(event?.attributes).toEqual(attributes);
  expect(await rowsOf(db.pool, 'select * from deliveries')).toEqual([
    {
      lane_id,
      seq: event?.sequence,
      subscription_number: number,
      tenant_id: 'tenant-a',
      ce_id: attributes['id'],
    },
  ]);
  expect(await rowsOf(db.pool, 'select seq_to, seq_from, lanes from batch_log')).toEqual([
    { seq_to: event?.sequence, seq_from: event?.sequence, lanes: [lane_id] },
  ]);
  expect(await storedPosition(db.pool)).toBe(8);
  expect(counts).toEqual({ accept: 1, stored: 1, batches: 1 });
});

test('null, empty and 1 MiB bodies are kept as they are', async () => {
  const bodies = [null, Buffer.alloc(0), Buffer.alloc(1_048_576, 0xf1), Buffer.from('x')];
  const all = bodies.map((value) => ({ attributes: attributesOf(), value }));
  await handlerOn(db.pool).onBatch(batchOf(recordsFrom(0, all)));
  for (const { attributes, value } of all) {
    const event = await readEvent(db.pool, 'tenant-a', attributes['id'] ?? '');
    expect(event?.body === null ? null : event?.body.equals(value ?? Buffer.alloc(0))).toBe(
      value === null ? null : true,
    );
    expect(event?.body === null).toBe(value === null);
  }
});

test('arrival order is the order of the records', async () => {
  const all = Array.from({ length: 50 }, () => ({ attributes: attributesOf() }));
  const { onBatch } = handlerOn(db.pool);
  await onBatch(batchOf(recordsFrom(0, all.slice(0, 20))));
  await onBatch(batchOf(recordsFrom(20, all.slice(20))));
  const rows = await rowsOf<{ ce_id: string }>(
    db.pool,
    'select ce_id from event_inbox order by seq',
  );
  expect(rows.map((row) => row.ce_id)).toEqual(all.map(({ attributes }) => attributes['id']));
});

test('a batch of drops only still moves the position and says nothing to the dispatchers', async () => {
  await subscribe(db.pool);
  const { onBatch, counts } = handlerOn(db.pool);
  const attributes = attributesOf({ systemevent: 'true' });
  expect(await onBatch(batchOf(recordsFrom(3, [{ attributes }, { attributes }])))).toBe(5);
  expect(await storedPosition(db.pool)).toBe(5);
  expect(counts).toEqual({ 'drop/system_event': 2, batches: 1 });
  expect(await countOf(db.pool, 'batch_log')).toBe(0);
});

test('an event without a match is stored and makes no delivery and no batch line', async () => {
  const { onBatch, counts } = handlerOn(db.pool);
  await onBatch(batchOf([recordAt(0)]));
  expect(counts).toEqual({ accept: 1, stored: 1, batches: 1 });
  expect(await countOf(db.pool, 'batch_log')).toBe(0);
});

test('a malformed record is quarantined whole', async () => {
  const headers = [
    ...headersOf(attributesOf()),
    [Buffer.from('ce-x'), Buffer.from([0xc3, 0x28])] as const,
  ];
  const { onBatch, counts } = handlerOn(db.pool);
  await onBatch(
    batchOf([
      recordAt(4, { headers, value: null }),
      recordAt(5, { headers: [], value: Buffer.from([0]) }),
    ]),
  );
  const rows = await rowsOf(
    db.pool,
    'select topic, partition, record_offset, reason, headers, value from quarantine order by record_offset',
  );
  expect(rows).toEqual([
    {
      topic,
      partition: 0,
      record_offset: 4,
      reason: 'invalid_utf8',
      headers: headers.map(([key, value]) =>
        key.toString() === 'ce-x'
          ? { key: 'ce-x', value_base64: 'wyg=' }
          : { key: key.toString(), value: value.toString() },
      ),
      value: null,
    },
    {
      topic,
      partition: 0,
      record_offset: 5,
      reason: 'missing_header',
      headers: [],
      value: Buffer.from([0]),
    },
  ]);
  expect(counts).toEqual({
    'quarantine/invalid_utf8': 1,
    'quarantine/missing_header': 1,
    batches: 1,
  });
});

test('10 000 malformed records in a row pass through quarantine', async () => {
  const { onBatch, counts } = handlerOn(db.pool);
  const parts = { headers: headersOf({ ...attributesOf(), id: 'not a uuid' }) };
  let position = 0;
  while (position < 10_000) {
    position = await onBatch(
      batchOf(
        recordsFrom(
          position,
          Array.from({ length: 500 }, () => parts),
        ),
      ),
    );
  }
  expect(await countOf(db.pool, 'quarantine')).toBe(10_000);
  expect(counts['quarantine/id_not_uuidv7']).toBe(10_000);
  expect(await storedPosition(db.pool)).toBe(10_000);
});

test('duplicates: inside a batch, across batches, other case of the id, but not across tenants', async () => {
  await subscribe(db.pool);
  await subscribe(db.pool, { tenant_id: 'tenant-b' });
  const id = uuidv7();
  const other = attributesOf();
  const { onBatch, counts } = handlerOn(db.pool);
  const first = { attributes: attributesOf({ id }), value: Buffer.from('first') };
  await onBatch(
    batchOf(
      recordsFrom(0, [
        first,
        { attributes: other },
        { attributes: attributesOf({ id }), value: Buffer.from('second') },
      ]),
    ),
  );
  await onBatch(
    batchOf(
      recordsFrom(3, [
        { attributes: attributesOf({ id: id.toUpperCase() }) },
        { attributes: attributesOf({ id, tenantid: 'tenant-b' }) },
        { attributes: other },
      ]),
    ),
  );
  expect(await countOf(db.pool, 'event_inbox')).toBe(3);
  expect((await readEvent(db.pool, 'tenant-a', id))?.body?.toString()).toBe('first');
  expect(counts).toEqual({
    accept: 3,
    stored: 3,
    'drop/duplicate': 3,
    duplicates: 3,
    batches: 2,
  });
  const pairs = await rowsOf(
    db.pool,
    'select d.ce_id from deliveries d join event_inbox i on i.tenant_id = d.tenant_id and i.ce_id = d.ce_id and i.seq = d.seq',
  );
  expect(pairs).toHaveLength(3);
});

test('a batch of duplicates only writes a position and nothing else', async () => {
  await subscribe(db.pool);
  const attributes = attributesOf();
  const { onBatch } = handlerOn(db.pool);
  await onBatch(batchOf([recordAt(0, { attributes })]));
  expect(await onBatch(batchOf([recordAt(1, { attributes }), recordAt(2, { attributes })]))).toBe(
    3,
  );
  expect(await countOf(db.pool, 'event_inbox')).toBe(1);
  expect(await countOf(db.pool, 'deliveries')).toBe(1);
  expect(await countOf(db.pool, 'batch_log')).toBe(1);
});
