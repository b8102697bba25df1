export type { Clock, Random } from './clock.ts';
export { systemClock } from './clock.ts';
export { Fifo } from './fifo.ts';
export type { Logger, LogOptions } from './log.ts';
export { createLog } from './log.ts';
export type { Service } from './service.ts';
export { backoff_ms, wait } from './wait.ts';
