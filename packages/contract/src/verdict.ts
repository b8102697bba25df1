import type { Attributes } from './rules.ts';

/** An event that may be stored and matched. */
export interface AcceptedEvent {
  readonly tenant_id: string;
  /** `ce-id`: a UUIDv7 in lower case. */
  readonly id: string;
  /** `ce-source`: the producing application. */
  readonly origin: string;
  readonly resource: string;
  readonly event: string;
  /** Bare `<resource>.<event>`. */
  readonly event_type: string;
  readonly schema_major: number;
  readonly attributes: Attributes;
}

export const dropReasons = ['system_event', 'unknown_tenant'] as const;
export type DropReason = (typeof dropReasons)[number];

/** Every reason for quarantine, in the order of the checks. */
export const quarantineReasons = [
  'invalid_header_name',
  'invalid_utf8',
  'headers_too_large',
  'missing_header',
  'header_too_long',
  'control_character',
  'unsupported_specversion',
  'id_not_uuidv7',
  'id_time_out_of_range',
  'invalid_source',
  'type_mismatch',
  'invalid_time',
  'invalid_schemaversion',
  'invalid_resourcetype',
  'invalid_eventtype',
  'value_too_large',
  'missing_tenant',
] as const;
export type QuarantineReason = (typeof quarantineReasons)[number];

export interface Quarantine {
  readonly verdict: 'quarantine';
  readonly reason: QuarantineReason;
  /** A sentence a person can act on. */
  readonly detail: string;
  /** The attribute at fault by CloudEvents name; null when it is none or several. */
  readonly field: string | null;
}

export type Verdict =
  | { readonly verdict: 'accept'; readonly event: AcceptedEvent }
  | { readonly verdict: 'drop'; readonly reason: DropReason }
  | Quarantine;

/** Quotes a value for a detail sentence, cut to a length that fits a log line. */
export function quote(value: string): string {
  return JSON.stringify(value.length > 80 ? `${value.slice(0, 80)}…` : value);
}

export function quarantine(
  reason: QuarantineReason,
  field: string | null,
  detail: string,
): Quarantine {
  return { verdict: 'quarantine', reason, detail, field };
}
