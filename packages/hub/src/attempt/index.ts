export type {
  Egress,
  EgressOptions,
  EgressPolicy,
  EgressTarget,
  ExchangeRequest,
  ExchangeResult,
  Resolver,
  UrlVerdict,
} from './egress/index.ts';
export { createEgress } from './egress/index.ts';
export type { AttemptErrorCode } from './errors.ts';
export { AttemptError, attemptErrors } from './errors.ts';
export type * from './port.ts';
export type { WebhookSinkOptions } from './webhook/index.ts';
export { createWebhookSink } from './webhook/index.ts';
