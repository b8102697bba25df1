import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { freePort, startHubProcess } from '@streaming-hub/testkit';
import { describe, expect, test } from 'vitest';
import { createMetrics } from '../src/metrics/index.ts';
import { settingsTable } from '../src/settings/index.ts';
import { actionOf, blocksOf } from './documents/blocks.ts';
import { repository, runPage } from './documents/run.ts';

/** What users read; notes on the design are for those who change it. */
const pages = globSync(['*.md', 'docs/{guide,reference}/**/*.md'], { cwd: repository });
const read = (page: string) => readFileSync(join(repository, page), 'utf8');

describe.each(pages)('%s', (page) => {
  const text = read(page);

  test('says of every command which test runs it', () => {
    for (const block of blocksOf(text)) {
      const action = actionOf(block);
      if (action.kind === 'elsewhere') expect(join(repository, action.name)).toSatisfy(existsSync);
    }
  });

  test('links to pages that exist', () => {
    const links = [...text.matchAll(/\]\(([^)#:]+)(#[^)]*)?\)/g)].map(([, target = '']) => target);
    const missing = links.filter((link) => !existsSync(join(repository, dirname(page), link)));
    expect(missing).toEqual([]);
  });

  test('names files and folders that exist', () => {
    const named = [...text.matchAll(/\b(?:packages|scripts|docs)\/[\w./-]*\w/g)].map(
      ([path]) => path,
    );
    expect(named.filter((path) => !existsSync(join(repository, path)))).toEqual([]);
  });

  test('names settings that exist', () => {
    const known = new Set<string>(Object.values(settingsTable).map((setting) => setting.name));
    const named = text.match(/STREAMING_HUB_[A-Z0-9_]*[A-Z0-9]/g) ?? [];
    expect(named.filter((name) => !known.has(name))).toEqual([]);
  });

  test('names metrics that exist', () => {
    const known = createMetrics().names();
    const named = text.match(/\bstreaming_hub_[a-z_]+/g) ?? [];
    expect(named.filter((name) => !known.includes(name))).toEqual([]);
  });
});

/** The ports that pages name; free ones stand for them here. */
async function portsFor(hub_port: string): Promise<Record<string, string>> {
  return {
    '127.0.0.1:8090': `127.0.0.1:${hub_port}`,
    '9000': String(await freePort()),
    '9001': String(await freePort()),
  };
}

test('the quick start works as it stands', async () => {
  const port = String(await freePort());
  const { code, output } = await runPage('docs/guide/quick-start.md', {
    replacements: await portsFor(port),
    environment: {
      STREAMING_HUB_HTTP_LISTEN_ADDR: `127.0.0.1:${port}`,
      STREAMING_HUB_LOG_LEVEL: 'warn',
    },
  });
  expect(code, output).toBe(0);
}, 150_000);

test.each(['receive-webhooks', 'publish-events', 'subscriptions'])(
  'the guide %s works as it stands, beside a running hub',
  async (name) => {
    const hub = await startHubProcess({});
    try {
      const replacements = await portsFor(new URL(hub.url).port);
      const { code, output } = await runPage(`docs/guide/${name}.md`, { replacements });
      expect(code, output).toBe(0);
    } finally {
      await hub.stop();
      hub.discard();
    }
  },
  150_000,
);
