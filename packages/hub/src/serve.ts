import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { createLog } from './base/index.ts';
import { KeyError } from './keys/index.ts';
import { createHub } from './main.ts';
import {
  describeSettings,
  readSettings,
  type Settings,
  SettingsError,
  settingsTable,
  settingsWithoutEffect,
} from './settings/index.ts';
import { StoreError } from './store/index.ts';
import { version } from './version.ts';

/** The whole process must have ended by then, whatever hangs. */
const stopCeiling_ms = 80_000;

/**
 * Runs the hub until SIGTERM or SIGINT, drains it, and answers the exit code: 0 after a clean
 * stop, 2 for settings that cannot be used, 1 for anything else.
 */
export async function serve(environment: NodeJS.ProcessEnv): Promise<number> {
  let settings: Settings;
  try {
    settings = readSettings(environment);
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    process.stderr.write(`${error.message}\n`);
    return 2;
  }
  const log = createLog({
    level: settings.logLevel,
    fields: { service: 'streaming-hub', version },
  });
  const isFirstStart = settings.embeddedPostgres && !existsSync(join(settings.dataDir, 'postgres'));
  const stopped = untilStopSignal();
  try {
    const hub = await createHub(settings, log);
    log.info({ settings: describeSettings(settings) }, 'effective configuration');
    const idle = settingsWithoutEffect(settings);
    if (idle.length > 0)
      log.warn({ settings: idle }, 'settings that nothing acts on in this version');
    try {
      await hub.start();
      log.info({ url: hub.url() }, 'the hub is ready');
      if (isFirstStart) process.stdout.write(firstSteps(hub.url() ?? ''));
      log.info({ signal: await stopped }, 'draining');
    } finally {
      // A start that failed half way leaves parts that run, and they would keep the process.
      const ceiling = setTimeout(() => process.exit(1), stopCeiling_ms);
      await hub.stop();
      clearTimeout(ceiling);
    }
    log.info({}, 'stopped');
    return 0;
  } catch (error) {
    const sentence = sentenceFor(error, settings);
    if (sentence === null) throw error;
    process.stderr.write(`${sentence}\n`);
    return 1;
  }
}

/** What to tell somebody whose hub does not start, or null for what nobody foresaw. */
function sentenceFor(error: unknown, settings: Settings): string | null {
  if (error instanceof StoreError || error instanceof KeyError) return error.message;
  if (error instanceof Error && 'code' in error && error.code === 'EADDRINUSE')
    return `Something else listens at ${settings.httpListenAddr}: end it, or set ${settingsTable.httpListenAddr.name} to another address (port 0 takes any free one).`;
  return null;
}

function untilStopSignal(): Promise<string> {
  return new Promise((resolve) => {
    // Not `once`: a second Ctrl-C must not cut the drain short.
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => resolve(signal));
  });
}

/** Once per data folder, for somebody who has just started a hub and wonders what now. */
function firstSteps(url: string): string {
  return `
The hub runs at ${url}. Publish an event, read it back, and subscribe an endpoint of yours:

  curl -s ${url}/v1/events -H 'content-type: application/cloudevents+json' -d '{"source":"ledger","resourcetype":"account","eventtype":"created","data":{"name":"first"}}'
  curl -s ${url}/v1/events
  curl -s ${url}/v1/subscriptions -H 'content-type: application/json' -d '{"event_types":["account.*"],"destination":{"url":"http://127.0.0.1:9000/events"}}'

More in docs/guide/quick-start.md.

`;
}
