/**
 * Global set-up of the `kafka` test project: one broker for the whole run, handed to the workers in
 * `TEST_KAFKA_BROKERS` (which, when already set, names the broker to use instead).
 */

import { startKafka } from './kafka.ts';
import { installKafka, missingForKafka } from './kafka-install.ts';

export async function setup(): Promise<(() => Promise<void>) | undefined> {
  if (process.env['TEST_KAFKA_BROKERS']) return undefined;
  const missing = missingForKafka() ?? (await installationFault());
  if (missing !== null) {
    process.env['TEST_KAFKA_MISSING'] = missing;
    process.stderr.write(`\nSKIPPED: every Kafka test. ${missing}\n\n`);
    return undefined;
  }
  const cluster = await startKafka();
  process.env['TEST_KAFKA_BROKERS'] = cluster.brokers.join(',');
  return async () => {
    delete process.env['TEST_KAFKA_BROKERS'];
    await cluster.stop();
  };
}

/** A machine that cannot fetch the broker (no network) lacks Kafka as much as one without Java. */
async function installationFault(): Promise<string | null> {
  try {
    await installKafka();
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
