export type { Clock, Random } from './clock.ts';
export { systemClock } from './clock.ts';
export type { Service } from './service.ts';
export { backoff_ms, wait } from './wait.ts';
