import { kafkaAvailable, kafkaBrokers } from '@streaming-hub/testkit';
import { describe } from 'vitest';
import { streamConformance } from '../conformance.ts';
import { openKafkaStream } from './index.ts';

describe.skipIf(!kafkaAvailable())('Kafka', () => {
  streamConformance(
    'kafka',
    async () => {
      const open = (client_id: string) =>
        openKafkaStream({
          brokers: kafkaBrokers(),
          client_id,
          group: { session_timeout_ms: 6_000, heartbeat_interval_ms: 200 },
        });
      const stream = open('conformance');
      return {
        stream,
        secondStream: async () => open('conformance-second'),
        close: () => stream.close(),
      };
    },
    { refused_value_bytes: 2 * 1024 * 1024 },
  );
});
