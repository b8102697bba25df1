import { createTestDatabase, type TestDatabase } from '@streaming-hub/testkit';
import { uuidv7 } from 'uuidv7';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Recorder } from './recorder.ts';
import type { DeliveredAttempt } from './types.ts';

let database: TestDatabase;

beforeEach(async () => {
  database = await createTestDatabase();
});
afterEach(() => database.drop());

const attempt = (seq: number): DeliveredAttempt => ({
  lane_id: 1,
  seq,
  subscription_number: 1,
  tenant_id: 't',
  attempt: {
    attempt: 1,
    delivery_attempt_id: uuidv7(),
    started_ms: Date.now(),
    duration_us: 1,
    outcome: 'delivered',
    status: 200,
    error_code: null,
    error_message: null,
    response_excerpt: null,
    dns_us: null,
    connect_us: null,
    tls_us: null,
    first_byte_us: null,
  },
});

test('waiting for what is recorded never ended while more was being recorded', async () => {
  const recorder = new Recorder({ pool: database.pool, onFault: () => {} });
  let seq = 0;
  let durable = 0;
  // As soon as one is durable the next one is recorded: there is always something unsettled.
  const next = () => {
    seq += 1;
    recorder.delivered(attempt(seq), () => {
      durable += 1;
      if (seq < 100_000) next();
    });
  };
  for (let n = 0; n < 300; n += 1) next();
  const before = seq;
  await recorder.flushed();
  expect(durable).toBeGreaterThanOrEqual(before);
  expect(recorder.backlog()).toBeGreaterThan(0);
  seq = 100_000;
  await recorder.flushed();
  expect(recorder.backlog()).toBe(0);
});
