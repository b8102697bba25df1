/** An accepted record as stored: bytes and identity never change after ingest. */
export interface StoredEvent {
  readonly tenant_id: string;
  /** `ce-id`, a UUIDv7 in lower case. */
  readonly id: string;
  /** Arrival sequence: microseconds since the Unix epoch, strictly increasing per hub. */
  readonly sequence: number;
  readonly origin: string;
  /** Bare `<resource>.<event>`. */
  readonly event_type: string;
  /** Every CloudEvents context attribute and extension by its name without prefix, plus `traceparent` and `tracestate`. */
  readonly attributes: Readonly<Record<string, string>>;
  /** The record's value, byte for byte; null for an event without a body. */
  readonly body: Buffer | null;
}
