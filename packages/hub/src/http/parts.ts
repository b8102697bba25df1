import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type { ContractRules } from '@streaming-hub/contract';
import type {
  FastifyBaseLogger,
  FastifyInstance,
  FastifyPluginAsync,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from 'fastify';
import type pg from 'pg';
import type { Authenticate } from '../auth/index.ts';
import type { Clock, Logger } from '../base/index.ts';
import type { Metrics } from '../metrics/index.ts';
import type { Stream } from '../stream/index.ts';
import type { RateLimitSettings } from './rate-limit.ts';
import type { Readiness } from './readiness.ts';

/** Everything the HTTP surface looks at. It starts nothing and owns nothing of it. */
export interface HttpParts {
  readonly pool: pg.Pool;
  readonly stream: Pick<Stream, 'publish' | 'ensureTopics'>;
  readonly rules: ContractRules;
  readonly authenticate: Authenticate;
  readonly readiness: Readiness;
  readonly metrics: Metrics;
  readonly log: Logger;
  readonly clock: Clock;
  readonly publish: PublishSettings;
  /** Limits `GET /v1/events` per tenant; without it there is no limit. */
  readonly pull?: RateLimitSettings;
  /** Serves `/metrics`. */
  readonly metricsEnabled: boolean;
  /** Tells the ingest that a topic is new; a hub without ingest has nobody to tell. */
  readonly onTopicCreated?: () => Promise<void>;
  /** Routes of other stages; they find `request.principal` set and our problem answers installed. */
  readonly routes: readonly FastifyPluginAsync[];
}

export interface PublishSettings {
  /** Creates a topic that does not exist yet; else publishing to it is refused. */
  readonly topicAutoCreate: boolean;
  readonly topicPartitions: number;
}

export type HubApp = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;
