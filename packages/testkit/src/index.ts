export type { TestDatabase } from './database.ts';
export { createEmptyDatabase, createTestDatabase } from './database.ts';
export { until } from './until.ts';
