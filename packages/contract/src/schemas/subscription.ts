import { Type } from 'typebox';
import { limits, schemaMajorMax } from '../limits.ts';
import { closed, Id, NullableText, NullableTime, Time, words } from './common.ts';

export const subscriptionDefaults = {
  timeout_seconds: 15,
  hold_seconds: 30,
  max_in_flight: 1,
} as const;

export const timeout_seconds_max = 30;
export const max_in_flight_max = 128;
export const hold_seconds_max = 864_000;

export const WebhookDestination = Type.Object(
  {
    url: Type.String({ minLength: 1, maxLength: 2048 }),
    headers: Type.Optional(
      Type.Record(Type.String(), Type.String({ maxLength: limits.tenant_header_value_bytes_max }), {
        maxProperties: limits.tenant_headers_max,
      }),
    ),
    timeout_seconds: Type.Optional(
      Type.Number({ minimum: 1, maximum: timeout_seconds_max, default: 15 }),
    ),
  },
  closed,
);

const EventTypes = Type.Array(
  Type.String({
    minLength: 1,
    maxLength: limits.resource_bytes_max + 1 + limits.event_bytes_max,
    description: 'resource.event, resource.* or *',
  }),
  { minItems: 1, maxItems: limits.event_types_max },
);
const Name = Type.Union([Type.String({ minLength: 1, maxLength: 256 }), Type.Null()]);
const SchemaMajor = Type.Union(
  [Type.Integer({ minimum: 0, maximum: schemaMajorMax }), Type.Null()],
  { description: 'null = any' },
);
const Origin = Type.Union([Type.String({ minLength: 1, maxLength: 1024 }), Type.Null()], {
  description: 'Only events of this producing application; null = any.',
});
const Format = words(['binary', 'structured']);
const Ordering = words(['fifo', 'keyed', 'unordered']);
const HoldSeconds = Type.Union([
  Type.Integer({ minimum: 0, maximum: hold_seconds_max }),
  Type.Null(),
]);
const MaxInFlight = Type.Integer({ minimum: 1, maximum: max_in_flight_max });
const RetrySchedule = Type.Union([
  Type.Array(Type.Number({ minimum: 0, maximum: limits.retry_step_seconds_max }), {
    minItems: 1,
    maxItems: limits.retry_steps_max,
  }),
  Type.Null(),
]);
const VerificationMethod = words(['challenge', 'handshake']);

/** What a tenant may set; only `destination` and `event_types` are required on creation. */
const settable = {
  name: Type.Optional(Name),
  kind: Type.Optional(words(['webhook'])),
  enabled: Type.Optional(Type.Boolean()),
  schema_major: Type.Optional(SchemaMajor),
  origin: Type.Optional(Origin),
  format: Type.Optional(Format),
  ordering: Type.Optional(Ordering),
  hold_seconds: Type.Optional(HoldSeconds),
  max_in_flight: Type.Optional(MaxInFlight),
  retry_schedule_seconds: Type.Optional(RetrySchedule),
  verification_method: Type.Optional(VerificationMethod),
};

export const SubscriptionCreate = Type.Object(
  { destination: WebhookDestination, event_types: EventTypes, ...settable },
  { ...closed, $id: 'SubscriptionCreate' },
);

export const SubscriptionPatch = Type.Object(
  {
    // Members that are absent stay as they are.
    destination: Type.Optional(Type.Partial(WebhookDestination, { ...closed, minProperties: 1 })),
    event_types: Type.Optional(EventTypes),
    ...settable,
  },
  { ...closed, minProperties: 1, $id: 'SubscriptionPatch' },
);

const answer = {
  id: Id,
  name: NullableText,
  kind: words(['webhook']),
  enabled: Type.Boolean(),
  verification_state: words(['pending', 'active', 'failed']),
  verification_reason: NullableText,
  verified_at: NullableTime,
  destination: WebhookDestination,
  event_types: EventTypes,
  schema_major: SchemaMajor,
  origin: Origin,
  format: Format,
  ordering: Ordering,
  hold_seconds: HoldSeconds,
  max_in_flight: MaxInFlight,
  retry_schedule_seconds: RetrySchedule,
  verification_method: VerificationMethod,
  disabled_reason: NullableText,
  created_at: Time,
  updated_at: Time,
};

export const SubscriptionAnswer = Type.Object(answer, { ...closed, $id: 'Subscription' });

/** The answer to creation and rotation: the secret is shown this once. */
export const SubscriptionWithSecret = Type.Object(
  { ...answer, secret: Type.String({ description: 'Shown only now. whsec_ and base64.' }) },
  { ...closed, $id: 'SubscriptionWithSecret' },
);

export const rotation_overlap_seconds_max = 7 * 86_400;
export const rotation_overlap_seconds_default = 86_400;

export const SecretRotation = Type.Object(
  {
    overlap_seconds: Type.Optional(
      Type.Integer({
        minimum: 0,
        maximum: rotation_overlap_seconds_max,
        default: rotation_overlap_seconds_default,
        description: 'How long the old secret stays valid.',
      }),
    ),
  },
  { ...closed, $id: 'SecretRotation' },
);

export type SubscriptionCreate = Type.Static<typeof SubscriptionCreate>;
export type SubscriptionPatch = Type.Static<typeof SubscriptionPatch>;
export type SubscriptionAnswer = Type.Static<typeof SubscriptionAnswer>;
export type SubscriptionWithSecret = Type.Static<typeof SubscriptionWithSecret>;
