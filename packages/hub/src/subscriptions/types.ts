export type DestinationKind = 'webhook';
export type VerificationState = 'pending' | 'active' | 'failed';
export type Ordering = 'fifo' | 'keyed' | 'unordered';
export type Format = 'binary' | 'structured';

export interface WebhookDestination {
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly timeout_seconds?: number;
}

/** A subscription as stored; the API shape is the same without `number`, `lane_id` and `version`. */
export interface Subscription {
  readonly id: string;
  /** Compact identity used inside the hub. */
  readonly number: number;
  readonly tenant_id: string;
  readonly name: string | null;
  readonly kind: DestinationKind;
  readonly enabled: boolean;
  readonly verification_state: VerificationState;
  readonly verification_reason: string | null;
  readonly destination: WebhookDestination;
  readonly lane_id: number;
  readonly event_types: readonly string[];
  readonly schema_major: number | null;
  readonly origin: string | null;
  readonly format: Format;
  readonly ordering: Ordering;
  /** How long a failing head holds its line; null = for ever. */
  readonly hold_seconds: number | null;
  readonly max_in_flight: number;
  readonly retry_schedule_seconds: readonly number[] | null;
  readonly verification_method: 'challenge' | 'handshake';
  readonly disabled_reason: string | null;
  readonly deleted: boolean;
  readonly version: number;
  readonly created_at: Date;
  readonly updated_at: Date;
}
