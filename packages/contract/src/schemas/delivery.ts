import { Type } from 'typebox';
import { closed, Id, NullableText, NullableTime, Time, words } from './common.ts';

export const deliveryStates = [
  'pending',
  'delivered',
  'dead_letter',
  'parked',
  'cancelled',
] as const;
export type DeliveryState = (typeof deliveryStates)[number];

const NullableMs = Type.Union([Type.Number({ minimum: 0 }), Type.Null()]);

export const DeliveryAnswer = Type.Object(
  {
    id: Id,
    event_id: Id,
    subscription_id: Id,
    state: words(deliveryStates),
    reason: NullableText,
    attempts: Type.Integer({ minimum: 0 }),
    next_attempt_at: NullableTime,
    created_at: Time,
    finished_at: NullableTime,
  },
  { ...closed, $id: 'Delivery' },
);

export const AttemptAnswer = Type.Object(
  {
    number: Type.Integer({ minimum: 1 }),
    delivery_attempt_id: Id,
    started_at: Time,
    duration_ms: Type.Number({ minimum: 0 }),
    status: Type.Union([Type.Integer(), Type.Null()], { description: 'HTTP status; null = none.' }),
    outcome: Type.String(),
    error: Type.Union([
      Type.Object({ code: Type.String(), message: Type.String() }, closed),
      Type.Null(),
    ]),
    response_excerpt: NullableText,
    timings_ms: Type.Object(
      {
        dns: NullableMs,
        connect: NullableMs,
        tls: NullableMs,
        first_byte: NullableMs,
        total: NullableMs,
      },
      closed,
    ),
  },
  { ...closed, $id: 'Attempt' },
);

/** A dead letter is a delivery with its terminal outcome, under the delivery's id. */
export const DeadLetterAnswer = Type.Object(
  {
    ...DeliveryAnswer.properties,
    dead_at: Time,
    last_status: Type.Union([Type.Integer(), Type.Null()]),
    last_error: NullableText,
  },
  { ...closed, $id: 'DeadLetter' },
);

/** What redriving one delivery answers: the delivery in its new life, and the id of that life. */
export const RedrivenAnswer = Type.Object(
  { ...DeliveryAnswer.properties, replay_id: Id },
  { ...closed, $id: 'Redriven' },
);

export type RedrivenAnswer = Type.Static<typeof RedrivenAnswer>;
export type DeliveryAnswer = Type.Static<typeof DeliveryAnswer>;
export type AttemptAnswer = Type.Static<typeof AttemptAnswer>;
export type DeadLetterAnswer = Type.Static<typeof DeadLetterAnswer>;
