import { createTestDatabase, type TestDatabase } from '@streaming-hub/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import {
  attributesOf,
  batchOf,
  countOf,
  handlerOn,
  recordsFrom,
  rowsOf,
  storedPosition,
} from './testing.ts';

let db: TestDatabase;

beforeEach(async () => {
  db = await createTestDatabase();
});
afterEach(() => db.drop());

/** Stands for content that passes every check of ours and that the database refuses all the same. */
async function refuse(origin: string, code: string): Promise<void> {
  await db.pool.query(`
    create function refuse() returns trigger language plpgsql as $$
    begin
      if new.origin = '${origin}' then raise exception 'not this one' using errcode = '${code}'; end if;
      return new;
    end $$;
    create trigger refuse before insert on event_inbox for each row execute function refuse()`);
}

const records = (from: number, bad: readonly number[], count: number) =>
  recordsFrom(
    from,
    Array.from({ length: count }, (_, index) => ({
      attributes: attributesOf({ source: bad.includes(index) ? 'crm' : 'midaz' }),
      value: Buffer.from(`body ${index}`),
    })),
  );

test.each(['22P05', '22021', '54000', '23514'])(
  'a record refused for its content (%s) is set aside alone',
  async (code) => {
    await refuse('crm', code);
    const { onBatch, counts } = handlerOn(db.pool);
    expect(await onBatch(batchOf(records(50, [3, 4, 29], 30)))).toBe(80);
    expect(await storedPosition(db.pool)).toBe(80);
    expect(await countOf(db.pool, 'event_inbox')).toBe(27);
    expect(counts).toMatchObject({ accept: 27, stored: 27, 'quarantine/storage_refused': 3 });
    expect(
      await rowsOf(
        db.pool,
        'select record_offset, reason, detail, value from quarantine order by record_offset',
      ),
    ).toEqual(
      [3, 4, 29].map((index) => ({
        record_offset: 50 + index,
        reason: 'storage_refused',
        detail: 'not this one',
        value: Buffer.from(`body ${index}`),
      })),
    );
  },
);

test.each(['57P01', '53100', '40P01', '08006', '57014'])(
  'a failure that passes by itself (%s) sets nothing aside',
  async (code) => {
    await refuse('crm', code);
    const { onBatch, counts } = handlerOn(db.pool);
    const batch = batchOf(records(0, [1], 4));
    await expect(onBatch(batch)).rejects.toThrow('not this one');
    expect(await storedPosition(db.pool)).toBeUndefined();
    expect(counts).toEqual({});
    await db.pool.query('drop trigger refuse on event_inbox');
    expect(await onBatch(batch)).toBe(4);
    expect(counts).toEqual({ accept: 4, stored: 4, batches: 1 });
  },
);
