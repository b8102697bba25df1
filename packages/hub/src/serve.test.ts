import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { runRefusedHub, startHubProcess, until } from '@streaming-hub/testkit';
import { expect, test } from 'vitest';

const run = promisify(execFile);

test('the first start prints three commands that work as printed; the second keeps the data and is quiet', async () => {
  const first = await startHubProcess({});
  let last = first;
  try {
    const commands = await until(() => {
      const found = first.log().match(/^ {2}curl .*$/gm);
      return found?.length === 3 ? found : null;
    });
    const answers: Record<string, unknown>[] = [];
    for (const command of commands) {
      const { stdout } = await run('sh', ['-c', command]);
      answers.push(JSON.parse(stdout) as Record<string, unknown>);
    }
    expect(answers).toMatchObject([
      { data: [{ topic: 'lerian.streaming.ledger' }] },
      { data: expect.any(Array) as unknown },
      { event_types: ['account.*'], secret: expect.stringMatching(/^whsec_/) as unknown },
    ]);
    const stored = () => last.request('GET', '/v1/events').then(({ body }) => body['data']);
    const [event] = await until(async () => {
      const events = (await stored()) as { id: string }[];
      return events.length > 0 ? events : null;
    });
    expect(await first.stop()).toBe(0);

    last = await first.restart();
    expect(await stored()).toMatchObject([{ id: event?.id }]);
    expect(last.log()).not.toContain('curl');
  } finally {
    await last.stop();
    first.discard();
  }
}, 90_000);

test('an address that is taken ends the start with one sentence, and nothing keeps running', async () => {
  const hub = await startHubProcess({});
  const folder = mkdtempSync(join(tmpdir(), 'hub-refused-'));
  try {
    const address = new URL(hub.url).host;
    const refused = await runRefusedHub({ HTTP_LISTEN_ADDR: address, LOG_LEVEL: 'silent' }, folder);
    expect(refused.code).toBe(1);
    expect(refused.output).toBe(
      `Something else listens at ${address}: end it, or set STREAMING_HUB_HTTP_LISTEN_ADDR to another address (port 0 takes any free one).\n`,
    );
    expect(existsSync(join(folder, 'postgres', 'cluster', 'postmaster.pid'))).toBe(false);
  } finally {
    await hub.stop();
    hub.discard();
    rmSync(folder, { recursive: true, force: true });
  }
}, 90_000);

test('another key than the stored secrets are sealed with ends the start, and nothing keeps running', async () => {
  const hub = await startHubProcess({});
  try {
    const destination = { url: 'http://127.0.0.1:65000/' };
    await hub.request('POST', '/v1/subscriptions', { destination, event_types: ['*'] });
    expect(await hub.stop()).toBe(0);
    writeFileSync(join(hub.data_dir, 'kek'), randomBytes(32).toString('base64'));
    const refused = await runRefusedHub({ LOG_LEVEL: 'silent' }, hub.data_dir);
    expect(refused.code).toBe(1);
    expect(refused.output).toMatch(
      /^The stored secrets are sealed with key [0-9a-f]{16}, but .*\n$/,
    );
    expect(existsSync(join(hub.data_dir, 'postgres', 'cluster', 'postmaster.pid'))).toBe(false);
  } finally {
    await hub.stop();
    hub.discard();
  }
}, 90_000);
