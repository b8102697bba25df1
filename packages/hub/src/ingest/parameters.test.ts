import { createTestDatabase, type TestDatabase } from '@streaming-hub/testkit';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { plainArray, textArray } from './arrays.ts';
import { headersJson } from './headers.ts';

let db: TestDatabase;

beforeAll(async () => {
  db = await createTestDatabase();
});
afterAll(() => db.drop());

async function roundTrip(literal: string, type: string): Promise<unknown> {
  return (await db.pool.query(`select $1::${type} as items`, [literal])).rows[0]?.items;
}

test('text arrays reach Postgres as they are, whatever they hold', async () => {
  const hard = [
    '',
    'null',
    'NULL',
    '"',
    '\\',
    '\\"',
    '{',
    '}',
    ',',
    ' a ',
    '\t\n',
    "'",
    '$1',
    'é',
    '😀',
    '{a,"b"}',
  ];
  expect(await roundTrip(textArray(hard), 'text[]')).toEqual(hard);
  const text = fc.string({ unit: 'binary' }).filter((value) => !value.includes('\0'));
  await fc.assert(
    fc.asyncProperty(fc.array(text, { maxLength: 20 }), async (items) => {
      expect(await roundTrip(textArray(items), 'text[]')).toEqual(items);
    }),
    { numRuns: 100 },
  );
});

test('plain arrays carry integers and uuids', async () => {
  expect(await roundTrip(plainArray([]), 'integer[]')).toEqual([]);
  expect(await roundTrip(plainArray([1, -1, 2147483647]), 'integer[]')).toEqual([
    1, -1, 2147483647,
  ]);
  const id = '01939c00-7a5e-7000-8000-000000000000';
  expect(await roundTrip(plainArray([id, id]), 'uuid[]')).toEqual([id, id]);
});

test('headers are kept in full: order, repeats, and bytes that are not text', () => {
  const pair = (key: string | number[], value: string | number[]) =>
    [Buffer.from(key as string), Buffer.from(value as string)] as const;
  const json = headersJson([
    pair('a', '1'),
    pair('a', '2'),
    pair([255], [0xc3]),
    pair('nul', '\0'),
    pair('', ''),
  ]);
  expect(JSON.parse(json)).toEqual([
    { key: 'a', value: '1' },
    { key: 'a', value: '2' },
    { key_base64: '/w==', value_base64: 'ww==' },
    { key: 'nul', value: '\0' },
    { key: '', value: '' },
  ]);
});
