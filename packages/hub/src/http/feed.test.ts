import { defaultRules } from '@streaming-hub/contract';
import { createTestDatabase, until } from '@streaming-hub/testkit';
import { expect, it } from 'vitest';
import { createLog } from '../base/index.ts';
import { createIngest } from '../ingest/index.ts';
import { createMetrics } from '../metrics/index.ts';
import { openEmbeddedStream } from '../stream/index.ts';
import { startTestServer, type TestServer } from './testing.ts';

/** The real thing: HTTP → embedded stream → ingest → inbox → HTTP. */
async function startPipeline() {
  const database = await createTestDatabase();
  const log = createLog({ level: 'silent' });
  const stream = openEmbeddedStream({ database: database.config, log });
  const ingest = createIngest({
    pool: database.pool,
    stream,
    rules: defaultRules,
    group: 'test',
    metrics: createMetrics().ingest,
    log,
    refresh_interval_ms: 60_000,
  });
  const server = await startTestServer({
    pool: database.pool,
    stream,
    onTopicCreated: () => ingest.consumer.refresh(),
  });
  await ingest.start();
  return {
    server,
    async close() {
      await server.close();
      await ingest.stop();
      await stream.close();
      await database.drop();
    },
  };
}

async function publish(server: TestServer, events: readonly object[]): Promise<string[]> {
  const answer = await server.call('acme', {
    method: 'POST',
    url: '/v1/events',
    headers: { 'content-type': 'application/cloudevents-batch+json' },
    payload: JSON.stringify(events),
  });
  expect(answer.status).toBe(202);
  return answer.body.data.map((row: { id: string }) => row.id);
}

it('a reader of the feed that follows several writers sees every event once, in order', async () => {
  const { server, close } = await startPipeline();
  const writers = 4;
  const batches = 15;
  const perBatch = 10;
  const total = writers * batches * perBatch;
  // Four topics of several partitions: ingest transactions run side by side and commit in any order.
  const writing = Array.from({ length: writers }, async (_, writer) => {
    const ids: string[] = [];
    for (let batch = 0; batch < batches; batch++) {
      const events = Array.from({ length: perBatch }, (__, n) => ({
        source: `app-${writer}`,
        resourcetype: 'account',
        eventtype: 'created',
        data: { writer, batch, n },
      }));
      ids.push(...(await publish(server, events)));
    }
    return ids;
  });
  const seen: { id: string; sequence: number }[] = [];
  let cursor = '';
  const reading = until(async () => {
    const page = await server.call('acme', { method: 'GET', url: `/v1/events?limit=7${cursor}` });
    cursor = `&cursor=${page.body.next_cursor}`;
    for (const { id, sequence } of page.body.data) seen.push({ id, sequence: Number(sequence) });
    return seen.length >= total;
  }, 25_000);
  const [published] = await Promise.all([Promise.all(writing), reading]);
  expect(new Set(seen.map(({ id }) => id))).toEqual(new Set(published.flat()));
  expect(seen).toHaveLength(total);
  expect(seen.every((event, n) => n === 0 || event.sequence > (seen[n - 1]?.sequence ?? 0))).toBe(
    true,
  );
  await close();
});

it('a new topic is created at the first event, which arrives at once', async () => {
  const { server, close } = await startPipeline();
  const [id] = await publish(server, [
    { source: 'newcomer', resourcetype: 'thing', eventtype: 'made', data: 1 },
  ]);
  const event = await until(async () => {
    const answer = await server.call('acme', { method: 'GET', url: `/v1/events/${id}` });
    return answer.status === 200 && answer.body;
  }, 5_000);
  expect(event).toMatchObject({ id, source: 'newcomer', data: 1 });
  const again = await server.call('acme', {
    method: 'POST',
    url: '/v1/events',
    headers: { 'content-type': 'application/cloudevents+json' },
    payload: { id, source: 'newcomer', resourcetype: 'thing', eventtype: 'made', data: 2 },
  });
  expect(again.status).toBe(202);
  await close();
});
