import {
  checkEventTypePattern,
  checkRetrySchedule,
  checkTenantHeaders,
  type FieldError,
  HubError,
} from '@streaming-hub/contract';
import type {
  NewSubscription,
  Ordering,
  SubscriptionPatch,
  SubscriptionSettings,
  WebhookDestination,
} from './types.ts';

const max_in_flight_default = 16;
const hold_seconds_default = 30;

/** The part of the egress guard that looks at addresses before anything is sent. */
export interface UrlGuard {
  checkUrl(url: string): { readonly ok: true } | { readonly ok: false; readonly message: string };
}

function inFlightDefault(ordering: Ordering): number {
  return ordering === 'fifo' ? 1 : max_in_flight_default;
}

/** Fills in what creation may leave out. */
export function completeSettings(given: NewSubscription): SubscriptionSettings {
  const ordering = given.ordering ?? 'fifo';
  return {
    name: given.name ?? null,
    kind: given.kind ?? 'webhook',
    enabled: given.enabled ?? true,
    destination: given.destination,
    event_types: given.event_types,
    schema_major: given.schema_major ?? null,
    origin: given.origin ?? null,
    format: given.format ?? 'binary',
    ordering,
    hold_seconds: given.hold_seconds === undefined ? hold_seconds_default : given.hold_seconds,
    max_in_flight: given.max_in_flight ?? inFlightDefault(ordering),
    retry_schedule_seconds: given.retry_schedule_seconds ?? null,
    verification_method: given.verification_method ?? 'challenge',
  };
}

/** What a subscription becomes by a change. A new ordering brings its own `max_in_flight` unless one is given. */
export function changeSettings(
  current: SubscriptionSettings,
  patch: SubscriptionPatch,
): SubscriptionSettings {
  const ordering = patch.ordering ?? current.ordering;
  return {
    ...settingsOf(current),
    ...patch,
    destination: { ...current.destination, ...patch.destination },
    ordering,
    max_in_flight:
      patch.max_in_flight ??
      (ordering === current.ordering ? current.max_in_flight : inFlightDefault(ordering)),
  };
}

/** Only the settings of something that holds more. */
export function settingsOf(source: SubscriptionSettings): SubscriptionSettings {
  const {
    name,
    kind,
    enabled,
    destination,
    event_types,
    schema_major,
    origin,
    format,
    ordering,
    hold_seconds,
    max_in_flight,
    retry_schedule_seconds,
    verification_method,
  } = source;
  return {
    name,
    kind,
    enabled,
    destination,
    event_types,
    schema_major,
    origin,
    format,
    ordering,
    hold_seconds,
    max_in_flight,
    retry_schedule_seconds,
    verification_method,
  };
}

/**
 * The rules that the API's schema cannot state.
 * @throws HubError `validation_failed` | `destination_refused` with every field at fault
 */
export function checkSettings(settings: SubscriptionSettings, guard: UrlGuard): void {
  const errors = [
    ...destinationFaults(settings.destination),
    ...eventTypeFaults(settings.event_types),
    ...numberFaults(settings),
    ...textFaults(settings),
  ];
  if (errors.length > 0) {
    throw new HubError('validation_failed', errors.map((error) => error.message).join(' '), {
      errors,
    });
  }
  const verdict = guard.checkUrl(settings.destination.url);
  if (!verdict.ok) {
    const refusal = {
      field: 'destination.url',
      code: 'destination_refused',
      message: verdict.message,
    };
    throw new HubError('destination_refused', verdict.message, { errors: [refusal] });
  }
}

const fault = (field: string, code: string, message: string): FieldError => ({
  field,
  code,
  message,
});

function destinationFaults(destination: WebhookDestination): FieldError[] {
  return checkTenantHeaders(destination.headers ?? {}).map((header) =>
    fault(header.field, 'header_refused', header.message),
  );
}

function eventTypeFaults(event_types: readonly string[]): FieldError[] {
  return event_types.flatMap((pattern, index) => {
    if (checkEventTypePattern(pattern)) return [];
    const message = `${JSON.stringify(pattern)} is not an event type: write resource.event, resource.* or *.`;
    return [fault(`event_types.${index}`, 'event_type_pattern', message)];
  });
}

function textFaults({ name, origin }: SubscriptionSettings): FieldError[] {
  return Object.entries({ name, origin }).flatMap(([field, text]) => {
    if (text === null || (!/\p{Cc}/u.test(text) && text.isWellFormed())) return [];
    return [
      fault(
        field,
        'control_character',
        `${field} must not hold control characters or half characters: take them out.`,
      ),
    ];
  });
}

function numberFaults(settings: SubscriptionSettings): FieldError[] {
  const faults: FieldError[] = [];
  if (settings.ordering === 'fifo' && settings.max_in_flight > 1) {
    const message =
      'With ordering fifo one delivery is in flight at a time: set max_in_flight to 1, or ordering to keyed or unordered.';
    faults.push(fault('max_in_flight', 'fifo_in_flight', message));
  }
  if (settings.retry_schedule_seconds !== null) {
    const checked = checkRetrySchedule(settings.retry_schedule_seconds);
    if (!checked.ok)
      faults.push(fault('retry_schedule_seconds', 'retry_schedule', checked.message));
  }
  return faults;
}
