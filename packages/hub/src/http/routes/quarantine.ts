import { page, QuarantineAnswer } from '@streaming-hub/contract';
import Type from 'typebox';
import type { HttpParts, HubApp } from '../parts.ts';
import { readQuarantine } from '../reads/quarantine.ts';
import { limitOf, limitUpTo, uuid } from '../schemas.ts';

const quarantineRows_max = 100;

const query = Type.Object(
  { cursor: Type.Optional(uuid), limit: limitUpTo(quarantineRows_max) },
  { additionalProperties: false },
);

/** Operators only: a record that could not be read belongs to no tenant. */
export function quarantineRoutes(app: HubApp, parts: HttpParts): void {
  app.get(
    '/admin/quarantine',
    { schema: { querystring: query, response: { 200: page(QuarantineAnswer) } } },
    async (request) => {
      const found = await readQuarantine(parts.pool, {
        after: request.query.cursor ?? null,
        limit: limitOf(request.query, quarantineRows_max),
      });
      return { data: found.rows, next_cursor: found.next };
    },
  );
}
