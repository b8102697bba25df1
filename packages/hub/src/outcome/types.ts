/** Identity of a delivery inside the hub. */
export interface DeliveryKey {
  readonly lane_id: number;
  readonly seq: number;
  readonly subscription_number: number;
}

/** One try as stored in delivery_attempts. Durations in whole microseconds; null = not measured. */
export interface AttemptRecord {
  readonly attempt: number;
  readonly delivery_attempt_id: string;
  readonly started_ms: number;
  readonly duration_us: number;
  /** delivered | failed | gone | cancelled | poison */
  readonly outcome: string;
  readonly status: number | null;
  readonly error_code: string | null;
  readonly error_message: string | null;
  readonly response_excerpt: string | null;
  readonly dns_us: number | null;
  readonly connect_us: number | null;
  readonly tls_us: number | null;
  readonly first_byte_us: number | null;
}

/** A first attempt that succeeded: one appended row and nothing else. */
export interface DeliveredAttempt extends DeliveryKey {
  readonly tenant_id: string;
  readonly attempt: AttemptRecord;
}

/**
 * What happens to a delivery that was not a plain first-time success.
 *   delivered  success after a failure: its row in `retries` goes.
 *   retry      failed: due again at `due_ms`.
 *   park       its subscription is switched off; refused when it is not.
 *   dead       dead letter, for `reason`.
 *   cancel     its subscription was deleted.
 */
export interface Change extends DeliveryKey {
  readonly action: 'delivered' | 'retry' | 'park' | 'dead' | 'cancel';
  readonly tenant_id: string;
  readonly ce_id: string;
  readonly shard: number;
  /** Fencing token of the shard's lease under which this was decided. */
  readonly token: number;
  readonly attempts: number;
  readonly attempts_before: number;
  readonly due_ms: number | null;
  readonly first_failed_ms: number | null;
  readonly reason: string | null;
  readonly replay_id: string | null;
  readonly last_status: number | null;
  readonly last_error: string | null;
  readonly suspect: boolean;
  readonly attempt: AttemptRecord | null;
}
