import type pg from 'pg';
import type { Logger } from '../base/index.ts';
import type { Settings } from '../settings/index.ts';
import { openEmbeddedStream } from './embedded/index.ts';
import { openKafkaStream } from './kafka/index.ts';
import type { Stream } from './port.ts';

/** The stream as configured: Kafka where brokers are named, else the one in Postgres. */
export function openStream(settings: Settings, database: pg.PoolConfig, log: Logger): Stream {
  const onFault = (fault: Error) => log.warn({ err: fault }, fault.message);
  if (settings.embeddedStream) return openEmbeddedStream({ database, log });
  const { kafkaScramMechanism, kafkaScramUsername, kafkaScramPassword } = settings;
  return openKafkaStream({
    brokers: settings.kafkaBrokers,
    client_id: 'streaming-hub',
    ...(kafkaScramMechanism && {
      sasl: {
        mechanism: kafkaScramMechanism as 'SCRAM-SHA-256' | 'SCRAM-SHA-512',
        username: kafkaScramUsername ?? '',
        password: kafkaScramPassword ?? '',
      },
    }),
    ...(settings.kafkaTlsEnabled && {
      tls: settings.kafkaCaCert
        ? { ca: Buffer.from(settings.kafkaCaCert, 'base64').toString() }
        : {},
    }),
    onFault,
  });
}
