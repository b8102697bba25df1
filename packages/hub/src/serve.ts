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
    await hub.start();
    log.info({ url: hub.url() }, 'the hub is ready');
    if (isFirstStart && process.stdout.isTTY !== undefined)
      process.stderr.write(firstSteps(hub.url() ?? ''));
    log.info({ signal: await stopped }, 'draining');
    const ceiling = setTimeout(() => process.exit(1), stopCeiling_ms);
    await hub.stop();
    clearTimeout(ceiling);
    log.info({}, 'stopped');
    return 0;
  } catch (error) {
    if (!(error instanceof StoreError) && !(error instanceof KeyError)) throw error;
    process.stderr.write(`${error.message}\n`);
    return 1;
  }
}

function untilStopSignal(): Promise<string> {
  return new Promise((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const)
      process.once(signal, () => resolve(signal));
  });
}

function firstSteps(url: string): string {
  return `
The hub is running at ${url}. Three things to try:

  curl -s ${url}/v1/subscriptions -H 'content-type: application/json' -d '{"destination":{"url":"http://127.0.0.1:9000/hook"},"event_types":["account.*"]}'
  curl -s ${url}/v1/events -H 'content-type: application/cloudevents+json' -d '{"source":"midaz","resourcetype":"account","eventtype":"created","data":{"name":"first"}}'
  curl -s ${url}/v1/events

`;
}
