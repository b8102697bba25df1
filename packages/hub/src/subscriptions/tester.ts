import { type AttemptAnswer, HubError } from '@streaming-hub/contract';
import type { Type } from 'typebox';
import { uuidv7 } from 'uuidv7';
import { type Clock, systemClock } from '../base/index.ts';
import type { StoredEvent } from '../inbox/index.ts';
import { sampleEvent } from './sample.ts';
import type { SecretStore } from './secrets.ts';
import type { DestinationKind, Subscription } from './types.ts';

/** The part of a sink that sends; it never throws for what a receiver does. */
export interface SampleSink {
  attempt(
    request: {
      readonly subscription: Subscription;
      readonly event: StoredEvent;
      readonly secrets: readonly string[];
      readonly attempt: number;
      readonly delivery_attempt_id: string;
      readonly replay_id: string | null;
    },
    signal: AbortSignal,
  ): Promise<{
    readonly outcome: string;
    readonly status: number | null;
    readonly error: { readonly code: string; readonly message: string } | null;
    readonly response_excerpt: string | null;
    readonly timings: {
      readonly dns_ms: number | null;
      readonly connect_ms: number | null;
      readonly tls_ms: number | null;
      readonly first_byte_ms: number | null;
      readonly total_ms: number;
    };
  }>;
}

export interface TesterOptions {
  readonly secrets: SecretStore;
  readonly sinks: Readonly<Record<DestinationKind, SampleSink>>;
  readonly type_prefix: string;
  readonly clock?: Clock;
}

export type SampleAttempt = Type.Static<typeof AttemptAnswer>;

/** Sample events on their way, per process. */
const samples_max = 32;

/**
 * Sends one signed sample event and answers what came of it; nothing is stored or retried.
 * The function throws HubError `rate_limited`, or KeyError when the secrets cannot be opened.
 */
export function createTester(
  options: TesterOptions,
): (subscription: Subscription, signal: AbortSignal) => Promise<SampleAttempt> {
  const { secrets, sinks, type_prefix, clock = systemClock } = options;
  let in_flight = 0;
  return async (subscription, signal) => {
    if (in_flight >= samples_max) {
      const headers = { 'retry-after': '1' };
      throw new HubError(
        'rate_limited',
        'Too many sample events are on their way; try again in a second.',
        { headers },
      );
    }
    in_flight += 1;
    try {
      const live = await secrets.live(subscription);
      const started_ms = clock.now_ms();
      const delivery_attempt_id = uuidv7();
      const event = sampleEvent(subscription, uuidv7(), started_ms, type_prefix);
      const result = await sinks[subscription.kind].attempt(
        { subscription, event, secrets: live, attempt: 1, delivery_attempt_id, replay_id: null },
        signal,
      );
      const { timings } = result;
      return {
        number: 1,
        delivery_attempt_id,
        started_at: new Date(started_ms).toISOString(),
        duration_ms: timings.total_ms,
        status: result.status,
        outcome: result.outcome,
        error: result.error && { code: result.error.code, message: result.error.message },
        response_excerpt: result.response_excerpt,
        timings_ms: {
          dns: timings.dns_ms,
          connect: timings.connect_ms,
          tls: timings.tls_ms,
          first_byte: timings.first_byte_ms,
          total: timings.total_ms,
        },
      };
    } finally {
      in_flight -= 1;
    }
  };
}
