import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { createTestDatabase, type TestDatabase, until } from '@streaming-hub/testkit';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { addEvents, addSubscription } from '../src/lanes/testing.ts';

const program = fileURLToPath(new URL('./poison-program.ts', import.meta.url));
const lives_max = 20;

let database: TestDatabase;

beforeEach(async () => {
  database = await createTestDatabase();
});
afterEach(() => database.drop());

const count = async (from: string): Promise<number> => {
  const answer = await database.pool.query<{ n: number }>(`select count(*)::int as n from ${from}`);
  return answer.rows[0]?.n ?? 0;
};

/** Starts the program again and again until every delivery has ended; answers how often it died. */
async function live(total: number, threshold: number): Promise<number> {
  for (let deaths = 0; deaths < lives_max; deaths += 1) {
    const child = spawn(process.execPath, [program, database.dsn, String(threshold)], {
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    const died = new Promise<boolean>((resolve) =>
      child.once('exit', (_, signal) => resolve(signal === 'SIGKILL')),
    );
    const ended = until(
      async () =>
        (await count(
          '(select distinct lane_id, seq, subscription_number from delivery_attempts where final) f',
        )) === total,
      60_000,
    ).then(
      () => false,
      () => false,
    );
    if (await Promise.race([died, ended])) continue;
    child.kill('SIGTERM');
    await died;
    return deaths;
  }
  return lives_max;
}

const subjects = (poison: string, at: number, length: number) =>
  Array.from({ length }, (_, n) => (n === at ? poison : `s${n % 5}`));

async function poisoned() {
  const dead = await database.pool.query<{ reason: string; subject: string }>(
    `select d.reason, i.attributes ->> 'subject' as subject from dead_letters d
     join event_inbox i on i.tenant_id = d.tenant_id and i.ce_id = d.ce_id`,
  );
  return dead.rows;
}

test('a delivery that kills the process ends as poison, none of its neighbours does', async () => {
  const crowded = await addSubscription(database.pool, { ordering: 'unordered' });
  await addEvents(database.pool, [crowded], subjects('poison', 9, 40));
  for (const ordering of ['fifo', 'keyed', 'unordered']) {
    const healthy = await addSubscription(database.pool, { ordering });
    await addEvents(database.pool, [healthy], subjects('', -1, 30));
  }
  expect(await live(130, 5)).toBe(5);
  expect(await poisoned()).toEqual([{ reason: 'poison', subject: 'poison' }]);
  expect(
    await count(
      `(select distinct lane_id, seq from delivery_attempts where outcome = 'delivered') d`,
    ),
  ).toBe(129);
  expect(await count('suspects')).toBe(0);
}, 90_000);

test('a delivery that kills the process when it is tried again ends as poison as well', async () => {
  const subscription = await addSubscription(database.pool, { hold_seconds: 0 });
  await addEvents(database.pool, [subscription], subjects('poison later', 2, 60));
  expect(await live(60, 3)).toBe(3);
  expect(await poisoned()).toEqual([{ reason: 'poison', subject: 'poison later' }]);
  expect(await count('suspects')).toBe(0);
}, 90_000);
