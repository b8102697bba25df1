export type { SubscriptionSource } from './cache.ts';
export type { DispatcherOptions, DispatcherStats } from './dispatcher.ts';
export { Dispatcher } from './dispatcher.ts';
export type { AttemptReport } from './sender.ts';
export { freeLeftLeases } from './shards.ts';
