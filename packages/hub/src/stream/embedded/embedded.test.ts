import { createTestDatabase } from '@streaming-hub/testkit';
import { streamConformance } from '../conformance.ts';
import { openEmbeddedStream } from './index.ts';

const record_bytes_max = 4 * 1024 * 1024;

streamConformance(
  'embedded',
  async () => {
    const database = await createTestDatabase();
    const open = () =>
      openEmbeddedStream({ database: database.config, lease_ms: 1500, record_bytes_max });
    const stream = open();
    return {
      stream,
      secondStream: async () => open(),
      close: async () => {
        await stream.close();
        await database.drop();
      },
    };
  },
  { refused_value_bytes: record_bytes_max },
);
