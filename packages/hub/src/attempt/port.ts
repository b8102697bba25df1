import type { StoredEvent } from '../inbox/index.ts';
import type { Subscription } from '../subscriptions/index.ts';

/** One try of a delivery: everything the sink may use. */
export interface AttemptRequest {
  readonly subscription: Subscription;
  readonly event: StoredEvent;
  /** Live signing secrets (`whsec_…`), newest first; never empty. */
  readonly secrets: readonly string[];
  /** 1, 2, 3 … over the whole life of the delivery. */
  readonly attempt: number;
  /** UUIDv7, new for every attempt. */
  readonly delivery_attempt_id: string;
  /** Set on redrives and replays: the job's id. */
  readonly replay_id: string | null;
}

export interface AttemptTimings {
  readonly dns_ms: number | null;
  readonly connect_ms: number | null;
  readonly tls_ms: number | null;
  readonly first_byte_ms: number | null;
  readonly total_ms: number;
}

export interface AttemptResult {
  /** delivered: 2xx. gone: 410, the subscription ends. failed: everything else. */
  readonly outcome: 'delivered' | 'gone' | 'failed';
  /** Whose failure it was: the receiver's counts for retries and breaker, the hub's own does not. */
  readonly blame: 'receiver' | 'hub' | null;
  readonly status: number | null;
  /** A code of the attempt-error table, and a sentence a tenant can act on. */
  readonly error: { readonly code: string; readonly message: string } | null;
  /** At most 4 KiB of the answer's body as text; null when empty or withheld. */
  readonly response_excerpt: string | null;
  /** From `Retry-After` on 429 and 503, capped at 10 h. */
  readonly retry_after_seconds: number | null;
  readonly timings: AttemptTimings;
}

export interface ProbeResult {
  readonly verified: boolean;
  /** A sentence for the owner: why it failed, or how it passed. */
  readonly reason: string;
  /** `WebHook-Allowed-Rate` of the handshake, requests per minute; null = no limit. */
  readonly allowed_rate_per_minute: number | null;
}

/** One sink speaks to one kind of destination. It never throws for what a receiver does. */
export interface Sink {
  attempt(request: AttemptRequest, signal: AbortSignal): Promise<AttemptResult>;
  /** Proves that the destination exists and wants events. */
  probe(
    subscription: Subscription,
    secrets: readonly string[],
    signal: AbortSignal,
  ): Promise<ProbeResult>;
  close(): Promise<void>;
}
