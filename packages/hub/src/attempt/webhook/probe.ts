import { randomBytes } from 'node:crypto';
import { signWebhook } from '@streaming-hub/contract';
import type { Clock } from '../../base/index.ts';
import type { Subscription } from '../../subscriptions/index.ts';
import type { Egress, EgressTarget, ExchangeResult } from '../egress/index.ts';
import type { ProbeResult } from '../port.ts';

export interface ProbeParts {
  readonly egress: Egress;
  readonly header_prefix: string;
  readonly user_agent: string;
  readonly clock: Clock;
  /** A new UUIDv7. */
  readonly newId: () => string;
  /** What the hub calls itself in `WebHook-Request-Origin`. */
  readonly request_origin: string;
}

export interface ProbeInput {
  readonly subscription: Subscription;
  readonly target: EgressTarget;
  readonly secrets: readonly string[];
  readonly timeout_ms: number;
  readonly signal: AbortSignal;
}

/** Requests per minute the handshake asks for; receivers may allow fewer. */
const REQUEST_RATE_PER_MINUTE = 60_000;
const PROBE_ANSWER_BYTES_MAX = 64 * 1024;

/**
 * Asks the receiver to repeat a random text: a signed POST of
 * `{"type":"webhook.verify","challenge":…}`, answered with 2xx and the challenge in the body,
 * as JSON field `challenge` or as plain text.
 */
export async function probeByChallenge(parts: ProbeParts, input: ProbeInput): Promise<ProbeResult> {
  const challenge = randomBytes(24).toString('base64url');
  const body = Buffer.from(JSON.stringify({ type: 'webhook.verify', challenge }));
  const id = parts.newId();
  const timestamp_seconds = Math.floor(parts.clock.now_ms() / 1000);
  const signatures = input.secrets.map((key) => signWebhook(key, id, timestamp_seconds, body));
  const result = await parts.egress.exchange({
    target: input.target,
    method: 'POST',
    headers: {
      ...tenantHeaders(input.subscription),
      'content-type': 'application/json',
      'user-agent': parts.user_agent,
      'webhook-id': id,
      'webhook-timestamp': String(timestamp_seconds),
      'webhook-signature': signatures.join(' '),
      [`${parts.header_prefix}Event-Type`.toLowerCase()]: 'webhook.verify',
    },
    body,
    timeout_ms: input.timeout_ms,
    answer_bytes_max: PROBE_ANSWER_BYTES_MAX,
    signal: input.signal,
  });
  const problem = answerProblem(result);
  if (problem !== null) return failed(problem);
  return echoes(bodyOf(result), challenge)
    ? passed('The receiver returned the challenge.', null)
    : failed(
        'The receiver answered 2xx but did not return the challenge: the body must be the value of "challenge", or JSON with that field.',
      );
}

/**
 * The abuse protection of the CloudEvents webhook specification: OPTIONS with the origin and rate the
 * hub wants, answered by the origin and rate the receiver allows.
 */
export async function probeByHandshake(parts: ProbeParts, input: ProbeInput): Promise<ProbeResult> {
  const result = await parts.egress.exchange({
    target: input.target,
    method: 'OPTIONS',
    headers: {
      ...tenantHeaders(input.subscription),
      'user-agent': parts.user_agent,
      'webhook-request-origin': parts.request_origin,
      'webhook-request-rate': String(REQUEST_RATE_PER_MINUTE),
    },
    body: null,
    timeout_ms: input.timeout_ms,
    answer_bytes_max: PROBE_ANSWER_BYTES_MAX,
    signal: input.signal,
  });
  const problem = answerProblem(result);
  if (problem !== null) return failed(problem);
  const origin = headerOf(result, 'webhook-allowed-origin');
  if (origin === null) {
    return failed('The answer to OPTIONS has no WebHook-Allowed-Origin header.');
  }
  const isAllowed = origin === '*' || origin.toLowerCase() === parts.request_origin.toLowerCase();
  if (!isAllowed) {
    return failed(
      `WebHook-Allowed-Origin allows ${origin.slice(0, 200)}, not * or ${parts.request_origin}.`,
    );
  }
  return judgeRate(headerOf(result, 'webhook-allowed-rate'));
}

/** No header and `*` both mean that the receiver sets no limit. */
function judgeRate(rate: string | null): ProbeResult {
  if (rate === null || rate === '*') {
    return passed('The receiver allowed deliveries without a rate limit.', null);
  }
  const perMinute = /^\d{1,9}$/.test(rate) ? Number(rate) : 0;
  return perMinute > 0
    ? passed(`The receiver allowed ${perMinute} deliveries per minute.`, perMinute)
    : failed(`WebHook-Allowed-Rate must be * or a number above 0, but is "${rate.slice(0, 50)}".`);
}

/** In lower case like the hub's own, so that the hub's win whatever the spelling. */
function tenantHeaders(subscription: Subscription): Record<string, string> {
  const headers = Object.entries(subscription.destination.headers ?? {});
  return Object.fromEntries(headers.map(([name, value]) => [name.toLowerCase(), value]));
}

function answerProblem(result: ExchangeResult): string | null {
  if (!result.answered) return result.error.message;
  if (result.status >= 200 && result.status < 300) return null;
  return result.status >= 300 && result.status < 400
    ? `The receiver answered ${result.status}, a redirect; give the final URL instead.`
    : `The receiver answered ${result.status}; 2xx is needed.`;
}

function echoes(body: string, challenge: string): boolean {
  const text = body.trim();
  if (text === challenge) return true;
  try {
    const parsed: unknown = JSON.parse(text);
    if (parsed === challenge) return true;
    return (
      typeof parsed === 'object' &&
      parsed !== null &&
      'challenge' in parsed &&
      parsed.challenge === challenge
    );
  } catch {
    return false; // not JSON, and not the challenge as plain text either
  }
}

function bodyOf(result: ExchangeResult): string {
  return result.answered ? result.body.toString('utf8') : '';
}

function headerOf(result: ExchangeResult, name: string): string | null {
  const value = result.answered ? result.headers[name] : undefined;
  const text = Array.isArray(value) ? value[0] : value;
  return text === undefined ? null : text.trim();
}

function passed(reason: string, allowed_rate_per_minute: number | null): ProbeResult {
  return { verified: true, reason, allowed_rate_per_minute };
}

function failed(reason: string): ProbeResult {
  return { verified: false, reason, allowed_rate_per_minute: null };
}
