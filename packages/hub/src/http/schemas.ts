import {
  deliveryStates,
  PageQuery,
  page_items_default,
  page_items_max,
} from '@streaming-hub/contract';
import Type from 'typebox';

const idCharacters_max = 64;

/** `/:id`. What is no id of ours names nothing, so it is not found rather than malformed. */
export const idPath = Type.Object(
  { id: Type.String({ maxLength: idCharacters_max }) },
  { additionalProperties: false },
);

const uuidPattern = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** The id in the form the tables have, or null when it is no UUID at all. */
export function asUuid(id: string): string | null {
  return uuidPattern.test(id) ? id.toLowerCase() : null;
}

export const uuid = Type.String({ pattern: uuidPattern.source, expects: 'a UUID' });

export function limitUpTo(rows_max: number) {
  const rows = Math.min(page_items_default, rows_max);
  return Type.Optional(Type.Integer({ minimum: 1, maximum: rows_max, default: rows }));
}

export function limitOf(query: { limit?: number }, rows_max = page_items_max): number {
  return query.limit ?? Math.min(page_items_default, rows_max);
}

export const deliveriesQuery = Type.Object(
  { ...PageQuery.properties, state: Type.Optional(Type.Enum(deliveryStates, { type: 'string' })) },
  { additionalProperties: false },
);

export const deadLettersQuery = Type.Object(
  { ...PageQuery.properties, subscription_id: Type.Optional(uuid) },
  { additionalProperties: false },
);

export const noQuery = Type.Object({}, { additionalProperties: false });
