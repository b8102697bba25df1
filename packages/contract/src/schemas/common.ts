import { Type } from 'typebox';
import { errorTable } from '../errors.ts';

/** Objects of the API are closed: an unknown field is refused. */
export const closed = { additionalProperties: false } as const;

export const Id = Type.String({ format: 'uuid', description: 'A UUIDv7.' });
export const Time = Type.String({ format: 'date-time', description: 'RFC 3339, UTC.' });
export const NullableText = Type.Union([Type.String(), Type.Null()]);
export const NullableTime = Type.Union([Time, Type.Null()]);

/** One of these words. */
export function words<const T extends readonly string[]>(values: T) {
  return Type.Enum(values, { type: 'string' });
}

/** Most items one page may hold. */
export const page_items_max = 500;
export const page_items_default = 50;

/** Paging of every list: an opaque cursor and a page size. */
export const PageQuery = Type.Object(
  {
    cursor: Type.Optional(Type.String({ maxLength: 512 })),
    limit: Type.Optional(
      Type.Integer({ minimum: 1, maximum: page_items_max, default: page_items_default }),
    ),
  },
  closed,
);

/** A page of items; `next_cursor` is null at the end. */
export function page<T extends Type.TSchema>(item: T) {
  return Type.Object({ data: Type.Array(item), next_cursor: NullableText }, closed);
}

/** An RFC 9457 problem document. */
export const Problem = Type.Object(
  {
    type: Type.String(),
    title: Type.String(),
    status: Type.Integer({ minimum: 400, maximum: 599 }),
    detail: Type.String(),
    instance: Type.String(),
    code: words(Object.keys(errorTable) as (keyof typeof errorTable)[]),
    trace_id: Type.String(),
    retryable: Type.Boolean({ description: 'Whether the same request may succeed later.' }),
    errors: Type.Optional(
      Type.Array(
        Type.Object({ field: Type.String(), message: Type.String(), code: Type.String() }, closed),
      ),
    ),
  },
  { ...closed, $id: 'Problem' },
);
