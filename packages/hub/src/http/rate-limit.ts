import { HubError } from '@streaming-hub/contract';
import type { FastifyReply } from 'fastify';
import type { Clock } from '../base/index.ts';

export interface RateLimitSettings {
  /** Requests that come back per second. */
  readonly rate_per_second: number;
  /** Requests that may come at once. */
  readonly burst: number;
}

/** Tenants remembered at once. The one idle longest is forgotten first, and starts full again. */
const tenants_max = 10_000;

interface Bucket {
  readonly tokens: number;
  readonly at_ms: number;
}

export type Taken =
  | { readonly ok: true; readonly remaining: number; readonly full_in_seconds: number }
  | { readonly ok: false; readonly retry_after_seconds: number; readonly full_in_seconds: number };

/** A token bucket as a function of what was left when: null = never seen, so full. */
export function takeToken(
  bucket: Bucket | null,
  settings: RateLimitSettings,
  now_ms: number,
): { readonly bucket: Bucket; readonly taken: Taken } {
  const { rate_per_second, burst } = settings;
  const elapsed_seconds = bucket ? Math.max(0, now_ms - bucket.at_ms) / 1_000 : 0;
  const tokens = Math.min(burst, (bucket?.tokens ?? burst) + elapsed_seconds * rate_per_second);
  const left = tokens >= 1 ? tokens - 1 : tokens;
  const full_in_seconds = Math.ceil((burst - left) / rate_per_second);
  return {
    bucket: { tokens: left, at_ms: now_ms },
    taken:
      tokens >= 1
        ? { ok: true, remaining: Math.floor(left), full_in_seconds }
        : {
            ok: false,
            retry_after_seconds: Math.max(1, Math.ceil((1 - tokens) / rate_per_second)),
            full_in_seconds,
          },
  };
}

/** Counts one request of a tenant, marks the answer, and throws `rate_limited` when it is too many. */
export type RateLimit = (tenant_id: string, reply: FastifyReply) => void;

/** One limit per tenant and process. */
export function createRateLimit(settings: RateLimitSettings, clock: Clock): RateLimit {
  const buckets = new Map<string, Bucket>();
  return (tenant_id, reply) => {
    const known = buckets.get(tenant_id) ?? null;
    const { bucket, taken } = takeToken(known, settings, clock.monotonic_ms());
    buckets.delete(tenant_id);
    buckets.set(tenant_id, bucket);
    if (buckets.size > tenants_max) {
      const idlest = buckets.keys().next();
      if (!idlest.done) buckets.delete(idlest.value);
    }
    reply.headers({
      'ratelimit-limit': settings.burst,
      'ratelimit-remaining': taken.ok ? taken.remaining : 0,
      'ratelimit-reset': taken.full_in_seconds,
    });
    if (taken.ok) return;
    throw new HubError(
      'rate_limited',
      `At most ${settings.burst} requests at once and ${settings.rate_per_second} a second; wait for Retry-After.`,
      { headers: { 'retry-after': String(taken.retry_after_seconds) } },
    );
  };
}
