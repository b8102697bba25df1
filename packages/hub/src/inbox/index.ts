export type { StoredEvent } from './types.ts';
