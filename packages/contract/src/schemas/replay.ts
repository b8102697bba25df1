import { Type } from 'typebox';
import { limits } from '../limits.ts';
import { closed, Id, Time, words } from './common.ts';

const filter = {
  subscription_id: Id,
  from: Time,
  to: Time,
  event_types: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 257 }), {
      minItems: 1,
      maxItems: limits.event_types_max,
    }),
  ),
  dry_run: Type.Optional(Type.Boolean({ default: false })),
  rate_per_second: Type.Optional(Type.Number({ exclusiveMinimum: 0, maximum: 10_000 })),
};

export const ReplayCreate = Type.Object(filter, { ...closed, $id: 'ReplayCreate' });
export const RedriveCreate = Type.Object(filter, { ...closed, $id: 'RedriveCreate' });

export const ReplayAnswer = Type.Object(
  {
    id: Id,
    state: words(['dry_run', 'running', 'paused', 'done', 'cancelled']),
    total: Type.Integer({ minimum: 0 }),
    done: Type.Integer({ minimum: 0 }),
  },
  { ...closed, $id: 'Replay' },
);

export type ReplayCreate = Type.Static<typeof ReplayCreate>;
export type ReplayAnswer = Type.Static<typeof ReplayAnswer>;
