import { createTestDatabase } from '@streaming-hub/testkit';
import { expect, test } from 'vitest';

test('works', async () => {
  const db = await createTestDatabase();
  const r = await db.pool.query(
    "select relname from pg_class where relname like '%\\_w____' and relkind = 'r' order by 1",
  );
  expect(r.rowCount).toBe(24);
  const x = await db.pool.query(
    'select 5::bigint a, array[1::bigint,2] b, 9223372036854775807::bigint c',
  );
  expect(x.rows[0]).toEqual({ a: 5, b: [1, 2], c: 9223372036854775807n });
  await db.drop();
});
