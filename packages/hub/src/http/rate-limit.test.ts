import fc from 'fast-check';
import { expect, it } from 'vitest';
import { takeToken } from './rate-limit.ts';
import { seedEvent, startTestServer } from './testing.ts';

it('never lets through more than the burst and what has come back since', () => {
  const bucketSettings = fc.record({
    rate_per_second: fc.integer({ min: 1, max: 1_000 }),
    burst: fc.integer({ min: 1, max: 1_000 }),
  });
  const gaps_ms = fc.array(fc.integer({ min: 0, max: 50 }), { minLength: 1, maxLength: 500 });
  fc.assert(
    fc.property(bucketSettings, gaps_ms, (settings, gaps) => {
      let bucket: Parameters<typeof takeToken>[0] = null;
      let now_ms = 0;
      let passed = 0;
      for (const gap_ms of gaps) {
        now_ms += gap_ms;
        const step = takeToken(bucket, settings, now_ms);
        bucket = step.bucket;
        if (step.taken.ok) passed += 1;
        expect(step.bucket.tokens).toBeGreaterThanOrEqual(0);
      }
      const allowed = settings.burst + (now_ms / 1_000) * settings.rate_per_second;
      expect(passed).toBeLessThanOrEqual(Math.floor(allowed + 1e-6));
    }),
  );
});

it('lets a caller through that waits as told', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 500 }),
      fc.integer({ min: 1, max: 50 }),
      (rate_per_second, burst) => {
        const settings = { rate_per_second, burst };
        let bucket: Parameters<typeof takeToken>[0] = null;
        for (let n = 0; n < burst; n++) bucket = takeToken(bucket, settings, 0).bucket;
        const { bucket: empty, taken } = takeToken(bucket, settings, 0);
        if (taken.ok) throw new Error('the bucket should be empty');
        expect(takeToken(empty, settings, taken.retry_after_seconds * 1_000).taken.ok).toBe(true);
      },
    ),
  );
});

it('answers 429 with when to come back, to that tenant only', async () => {
  const server = await startTestServer({ pull: { rate_per_second: 0.001, burst: 2 } });
  await seedEvent(server.pool, 'greedy');
  const get = { method: 'GET' as const, url: '/v1/events' };
  const answers = [];
  for (let n = 0; n < 3; n++) answers.push(await server.call('greedy', get));
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 429]);
  expect(answers[0]?.headers).toMatchObject({ 'ratelimit-limit': '2', 'ratelimit-remaining': '1' });
  expect(answers[2]).toMatchObject({ body: { code: 'rate_limited', retryable: true } });
  expect(answers[2]?.headers).toMatchObject({
    'retry-after': expect.stringMatching(/^\d+$/),
    'ratelimit-remaining': '0',
  });
  expect((await server.call('modest', get)).status).toBe(200);
  await server.close();
});
