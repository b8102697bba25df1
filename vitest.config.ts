import { defineConfig } from 'vitest/config';

const postgres = './packages/testkit/src/global-postgres.ts';
const kafka = './packages/testkit/src/global-kafka.ts';
// Processes are killed and restarted against the clock here; a shared machine may stall once.
const retry = process.env['CI'] === undefined ? 0 : 1;
const exclude = ['**/node_modules/**', '**/data/**'];

export default defineConfig({
  test: {
    testTimeout: 120_000,
    hookTimeout: 120_000,
    retry,
    projects: [
      {
        test: {
          name: 'main',
          include: ['packages/*/src/**/*.test.ts', 'packages/*/test/**/*.test.ts'],
          exclude: [...exclude, '**/*.kafka.test.ts'],
          globalSetup: [postgres],
          retry,
          testTimeout: 120_000,
          hookTimeout: 120_000,
        },
      },
      {
        test: {
          name: 'kafka',
          // Several of these files start brokers of their own.
          fileParallelism: false,
          include: ['packages/*/src/**/*.kafka.test.ts', 'packages/*/test/**/*.kafka.test.ts'],
          exclude,
          globalSetup: [postgres, kafka],
          retry,
          testTimeout: 180_000,
          hookTimeout: 120_000,
        },
      },
    ],
  },
});
