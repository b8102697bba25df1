/** Comparison of P2: the same client reads the same topic in its fastest documented way and throws the records away. */
import { Consumer } from '@platformatic/kafka';
import { benchTopic } from '../events.ts';
import { measure, parameters } from './child.ts';

const given = parameters<{ brokers: string[]; count: number; group: string }>();
const consumer = new Consumer({
  clientId: 'bench-bare',
  groupId: given.group,
  bootstrapBrokers: given.brokers,
  autocommit: false,
  maxWaitTime: 100,
});
// Bounded fetches are five times faster than the defaults (50 MB at a time).
const stream = await consumer.consume({
  topics: [benchTopic],
  mode: 'earliest',
  maxBytes: 1 << 20,
  maxBytesPerPartition: 1 << 18,
});

await measure(
  () =>
    new Promise((resolve, reject) => {
      let count = 0;
      stream.on('error', reject);
      stream.on('data', () => {
        count += 1;
        if (count === given.count) resolve(count);
      });
    }),
);
