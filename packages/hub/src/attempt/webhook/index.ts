import { buildWebhookRequest } from '@streaming-hub/contract';
import type { Subscription } from '../../subscriptions/index.ts';
import type { Egress, EgressTarget, ExchangeResult } from '../egress/index.ts';
import { AttemptError, attemptErrors } from '../errors.ts';
import type { AttemptRequest, AttemptResult, AttemptTimings, ProbeResult, Sink } from '../port.ts';
import { excerptOf, judgeStatus, retryAfter_seconds } from './answer.ts';
import type { ProbeParts } from './probe.ts';
import { probeByChallenge, probeByHandshake } from './probe.ts';

export interface WebhookSinkOptions extends Omit<ProbeParts, 'request_origin'> {
  readonly egress: Egress;
  /** Starts the hub's own headers, for example `X-Lerian-`. */
  readonly header_prefix: string;
  /** For the whole exchange where the subscription names none; at most 30 s. */
  readonly timeout_ms: number;
  /** Keep what private targets answer. Only where every tenant may read the inner network, as on a developer's machine. */
  readonly show_private_excerpts?: boolean;
  readonly request_origin?: string;
}

const TIMEOUT_MAX_MS = 30_000;
const ANSWER_BYTES_MAX = 64 * 1024;

const noTimings: AttemptTimings = {
  dns_ms: null,
  connect_ms: null,
  tls_ms: null,
  first_byte_ms: null,
  total_ms: 0,
};

/** Delivers to HTTP endpoints: one signed POST per attempt, one classified result. */
export function createWebhookSink(options: WebhookSinkOptions): Sink {
  const { egress, clock } = options;
  const probeParts: ProbeParts = {
    ...options,
    request_origin: options.request_origin ?? 'streaming-hub',
  };

  function timeoutOf_ms(subscription: Subscription): number {
    const own_seconds = subscription.destination.timeout_seconds;
    return Math.min(own_seconds ? own_seconds * 1000 : options.timeout_ms, TIMEOUT_MAX_MS);
  }

  async function send(
    request: AttemptRequest,
    target: EgressTarget,
    signal: AbortSignal,
  ): Promise<AttemptResult> {
    const { subscription } = request;
    const built = buildWebhookRequest({
      event: request.event,
      format: subscription.format,
      header_prefix: options.header_prefix,
      secrets: request.secrets,
      attempt: request.attempt,
      delivery_attempt_id: request.delivery_attempt_id,
      replay_id: request.replay_id,
      timestamp_seconds: Math.floor(clock.now_ms() / 1000),
      user_agent: options.user_agent,
      extra_headers: subscription.destination.headers ?? {},
    });
    const result = await egress.exchange({
      target,
      method: 'POST',
      headers: built.headers,
      body: built.body,
      timeout_ms: timeoutOf_ms(subscription),
      answer_bytes_max: ANSWER_BYTES_MAX,
      signal,
    });
    return toAttemptResult(result, target.hostname);
  }

  function toAttemptResult(result: ExchangeResult, hostname: string): AttemptResult {
    if (!result.answered) return failure(result.error, result.status, result.timings);
    const { outcome, error } = judgeStatus(result.status, result.headers, hostname);
    const isVisible = !result.peer_is_private || options.show_private_excerpts === true;
    return {
      outcome,
      blame: error === null ? null : attemptErrors[error.code].blame,
      status: result.status,
      error: error === null ? null : { code: error.code, message: error.message },
      response_excerpt: isVisible ? excerptOf(result.body) : null,
      retry_after_seconds: retryAfter_seconds(result.status, result.headers, clock.now_ms()),
      timings: result.timings,
    };
  }

  return {
    async attempt(request, signal) {
      const verdict = egress.checkUrl(request.subscription.destination.url);
      if (!verdict.ok) return failure(new AttemptError('egress_refused', verdict.message));
      try {
        return await send(request, verdict.target, signal);
      } catch (error) {
        const message = `The hub could not build the request: ${(error as Error).message}`;
        return failure(new AttemptError('hub_error', message, error));
      }
    },

    async probe(subscription, secrets, signal): Promise<ProbeResult> {
      const verdict = egress.checkUrl(subscription.destination.url);
      if (!verdict.ok) {
        return { verified: false, reason: verdict.message, allowed_rate_per_minute: null };
      }
      const input = {
        subscription,
        target: verdict.target,
        secrets,
        timeout_ms: timeoutOf_ms(subscription),
        signal,
      };
      const method = subscription.verification_method;
      switch (method) {
        case 'challenge':
          return probeByChallenge(probeParts, input);
        case 'handshake':
          return probeByHandshake(probeParts, input);
        default:
          return method satisfies never;
      }
    },

    // The egress belongs to whoever made it; other calls may still need it.
    close: () => Promise.resolve(),
  };
}

function failure(
  error: AttemptError,
  status: number | null = null,
  timings = noTimings,
): AttemptResult {
  return {
    outcome: 'failed',
    blame: attemptErrors[error.code].blame,
    status,
    error: { code: error.code, message: error.message },
    response_excerpt: null,
    retry_after_seconds: null,
    timings,
  };
}
