export type DestinationKind = 'webhook';
export type VerificationState = 'pending' | 'active' | 'failed';
export type Ordering = 'fifo' | 'keyed' | 'unordered';
export type Format = 'binary' | 'structured';

export interface WebhookDestination {
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly timeout_seconds?: number;
}

/**
 * A subscription as stored; the API shape is the same without `number`, `lane_id` and `version`.
 *
 *   enabled             switched by its owner; switched off by the hub too (410, long failure), which
 *                       then leaves a `disabled_reason`. Only such a one is switched on again by a probe
 *                       that passes on request; what its owner switched off stays off.
 *   verification_state  pending → active | failed, by a probe. A new address → pending. failed →
 *                       active by a later probe. A probe that fails leaves an active one active.
 *   deleted             for good; nothing leads back.
 *
 * Events match only while it is enabled, active and not deleted.
 */
export interface Subscription {
  readonly id: string;
  /** Compact identity used inside the hub. */
  readonly number: number;
  readonly tenant_id: string;
  readonly name: string | null;
  readonly kind: DestinationKind;
  readonly enabled: boolean;
  readonly verification_state: VerificationState;
  /** A sentence: why the last probe failed, or how it passed. */
  readonly verification_reason: string | null;
  /** When a probe last passed. */
  readonly verified_at?: Date | null;
  /** What the receiver allowed in the handshake, requests per minute; null = no limit. */
  readonly allowed_rate_per_minute?: number | null;
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

/** What a tenant may set, complete and checked. */
export interface SubscriptionSettings {
  readonly name: string | null;
  readonly kind: DestinationKind;
  readonly enabled: boolean;
  readonly destination: WebhookDestination;
  readonly event_types: readonly string[];
  readonly schema_major: number | null;
  readonly origin: string | null;
  readonly format: Format;
  readonly ordering: Ordering;
  readonly hold_seconds: number | null;
  readonly max_in_flight: number;
  readonly retry_schedule_seconds: readonly number[] | null;
  readonly verification_method: 'challenge' | 'handshake';
}

/** What creation takes: the rest is filled in. */
export type NewSubscription = Pick<SubscriptionSettings, 'destination' | 'event_types'> &
  Partial<SubscriptionSettings>;

/** A change: members that are absent stay as they are, those of `destination` too. */
export type SubscriptionPatch = Omit<Partial<SubscriptionSettings>, 'destination' | 'kind'> & {
  readonly kind?: DestinationKind;
  readonly destination?: Partial<WebhookDestination>;
};
