import { type Attributes, defaultRules, encodeRecord } from '@streaming-hub/contract';
import { catalogueEvents, malformedRecords } from '@streaming-hub/contract/fixtures';
import { createTestDatabase, type TestDatabase } from '@streaming-hub/testkit';
import { uuidv7 } from 'uuidv7';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { listQuarantine, readEvents } from '../inbox/index.ts';
import { batchOf, countOf, handlerOn, recordsFrom, subscribe } from './testing.ts';

let db: TestDatabase;

beforeEach(async () => {
  db = await createTestDatabase();
});
afterEach(() => db.drop());

test('every malformed record gets its verdict; what is quarantined is all there', async () => {
  const { onBatch, counts } = handlerOn(db.pool);
  const malformed = malformedRecords();
  const entries = malformed.map(({ record }) => ({
    headers: record.headers,
    value: record.value,
  }));
  expect(await onBatch(batchOf(recordsFrom(0, entries)))).toBe(malformed.length);

  const expected = Map.groupBy(malformed, (item) => `${item.verdict}/${item.reason}`);
  expect(counts).toEqual({
    batches: 1,
    ...Object.fromEntries([...expected].map(([name, items]) => [name, items.length])),
  });
  const stored = new Map<number, Awaited<ReturnType<typeof listQuarantine>>[number]>();
  for (let before: string | null = null; ; ) {
    const page = await listQuarantine(db.pool, { before, limit: 50 });
    if (page.length === 0) break;
    for (const entry of page) stored.set(entry.offset, entry);
    before = page.at(-1)?.id ?? null;
  }
  for (const [offset, { name, record, verdict, reason }] of malformed.entries()) {
    const entry = stored.get(offset);
    if (verdict === 'drop') {
      expect(entry, name).toBeUndefined();
      continue;
    }
    expect(entry?.reason, name).toBe(reason);
    expect(entry?.value ?? null, name).toEqual(record.value);
    const headers = entry?.headers.map((header) => [
      header.key === undefined
        ? Buffer.from(header.key_base64 ?? '', 'base64')
        : Buffer.from(header.key),
      header.value === undefined
        ? Buffer.from(header.value_base64 ?? '', 'base64')
        : Buffer.from(header.value),
    ]);
    expect(headers, name).toEqual(record.headers.map(([key, value]) => [key, value]));
  }
});

test('the whole catalogue is stored as it was sent and matched by a star', async () => {
  await subscribe(db.pool, { tenant_id: 'default' });
  const context = { tenant_id: 'default', now_ms: Date.now(), newId: () => uuidv7() };
  const sent: { attributes: Attributes; body: Buffer }[] = [...catalogueEvents(context)].map(
    (event) => ({ ...event }),
  );
  const entries = sent.map(({ attributes, body }) => {
    const record = encodeRecord(attributes, body, defaultRules);
    return { headers: record.headers, value: record.value };
  });
  const { onBatch, counts } = handlerOn(db.pool);
  await onBatch(batchOf(recordsFrom(0, entries)));
  expect(counts).toMatchObject({ accept: sent.length });
  expect(await countOf(db.pool, 'deliveries')).toBe(sent.length);
  const keys = sent.map(({ attributes }) => ({ tenant_id: 'default', id: attributes['id'] ?? '' }));
  const events = new Map((await readEvents(db.pool, keys)).map((event) => [event.id, event]));
  for (const { attributes, body } of sent) {
    expect(events.get(attributes['id'] ?? '')).toMatchObject({ attributes, body });
  }
});
