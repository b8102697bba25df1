import { Type } from 'typebox';
import { quarantineReasons } from '../verdict.ts';
import { closed, Id, NullableText, Time, words } from './common.ts';
import { DeliveryAnswer } from './delivery.ts';

/** An event as CloudEvents JSON with its arrival sequence; extensions make it an open object. */
export const EventAnswer = Type.Object(
  {
    specversion: Type.Literal('1.0'),
    id: Id,
    source: Type.String(),
    type: Type.String(),
    time: Type.String(),
    schemaversion: Type.String(),
    resourcetype: Type.String(),
    eventtype: Type.String(),
    tenantid: Type.String(),
    subject: Type.Optional(Type.String()),
    datacontenttype: Type.Optional(Type.String()),
    dataschema: Type.Optional(Type.String()),
    sequence: Type.String({ description: 'Arrival order; compare as an integer.' }),
    data: Type.Optional(Type.Unknown()),
    data_base64: Type.Optional(Type.String()),
  },
  { additionalProperties: true, $id: 'Event' },
);

export const PublishAnswer = Type.Object(
  {
    data: Type.Array(
      Type.Object(
        {
          id: Id,
          topic: Type.String(),
          partition: Type.Integer({ minimum: 0 }),
          offset: Type.String(),
        },
        closed,
      ),
    ),
  },
  { ...closed, $id: 'PublishAnswer' },
);

export const QuarantineAnswer = Type.Object(
  {
    id: Id,
    topic: Type.String(),
    partition: Type.Integer({ minimum: 0 }),
    offset: Type.String(),
    reason: words([...quarantineReasons, 'storage_refused']),
    detail: Type.String(),
    headers: Type.Array(
      Type.Object(
        {
          key: Type.Optional(Type.String()),
          key_base64: Type.Optional(
            Type.String({ description: 'Instead of key when it is not UTF-8.' }),
          ),
          value: Type.Optional(Type.String()),
          value_base64: Type.Optional(
            Type.String({ description: 'Instead of value when it is not UTF-8.' }),
          ),
        },
        closed,
      ),
    ),
    value_base64: NullableText,
    received_at: Time,
  },
  { ...closed, $id: 'Quarantine' },
);

/** Why an event did not become a delivery of a subscription. */
export const matchReasons = [
  'event_type',
  'schema_major',
  'origin',
  'filter',
  'disabled',
  'unverified',
  'created_later',
  'deleted',
] as const;
export type MatchReason = (typeof matchReasons)[number];

export const ExplainAnswer = Type.Object(
  {
    event_id: Id,
    verdict: words(['accept', 'drop', 'quarantine', 'unknown']),
    reason: NullableText,
    detail: NullableText,
    subscriptions: Type.Array(
      Type.Object(
        {
          subscription_id: Id,
          name: NullableText,
          matched: Type.Boolean(),
          reason: Type.Union([words(matchReasons), Type.Null()]),
          detail: Type.String(),
        },
        closed,
      ),
    ),
    deliveries: Type.Array(
      Type.Object(
        {
          ...DeliveryAnswer.properties,
          history: Type.Array(
            Type.Object({ at: Time, what: Type.String(), detail: Type.String() }, closed),
          ),
        },
        closed,
      ),
    ),
  },
  { ...closed, $id: 'Explain' },
);

export type EventAnswer = Type.Static<typeof EventAnswer>;
export type PublishAnswer = Type.Static<typeof PublishAnswer>;
export type QuarantineAnswer = Type.Static<typeof QuarantineAnswer>;
export type ExplainAnswer = Type.Static<typeof ExplainAnswer>;
