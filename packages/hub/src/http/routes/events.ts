import { DeliveryAnswer, EventAnswer, HubError, PageQuery, page } from '@streaming-hub/contract';
import Type from 'typebox';
import { readFactsOfEvent, toDeliveryView } from '../../deliveries/index.ts';
import { decodeCursor, encodeCursor } from '../cursor.ts';
import type { HttpParts, HubApp } from '../parts.ts';
import { createRateLimit } from '../rate-limit.ts';
import { readEvent, readEventSequence, readEvents } from '../reads/events.ts';
import { asUuid, idPath, limitOf } from '../schemas.ts';

const list = 'events';
/** One event goes to each subscription of its tenant once; a tenant with more sees the first ones. */
const deliveriesOfEvent_max = 1_000;

const EventFeed = Type.Object(
  { data: Type.Array(EventAnswer), next_cursor: Type.String(), has_more: Type.Boolean() },
  { additionalProperties: false },
);

export function eventRoutes(app: HubApp, parts: HttpParts): void {
  const { pool } = parts;
  const limitPull = parts.pull ? createRateLimit(parts.pull, parts.clock) : null;

  // A feed: `next_cursor` is always there, so that a reader at the end can come back for what
  // arrives later; `has_more` says whether it is worth asking at once.
  app.get(
    '/v1/events',
    { schema: { querystring: PageQuery, response: { 200: EventFeed } } },
    async (request, reply) => {
      const { cursor } = request.query;
      limitPull?.(request.principal.tenant_id, reply);
      const after = cursor === undefined ? 0 : decodeCursor(list, cursor, 1)[0];
      const { tenant_id } = request.principal;
      const found = await readEvents(pool, { tenant_id, after, limit: limitOf(request.query) });
      return reply.send({
        data: found.events,
        next_cursor: encodeCursor(list, [found.last]),
        has_more: found.more,
      } as never);
    },
  );

  app.get(
    '/v1/events/:id',
    { schema: { params: idPath, response: { 200: EventAnswer } } },
    async (request, reply) => {
      const id = asUuid(request.params.id);
      const event = id && (await readEvent(pool, request.principal.tenant_id, id));
      if (!event) throw noSuchEvent(request.params.id);
      return reply.send(event as never);
    },
  );

  app.get(
    '/v1/events/:id/deliveries',
    { schema: { params: idPath, response: { 200: page(DeliveryAnswer) } } },
    async (request) => {
      const { tenant_id } = request.principal;
      const id = asUuid(request.params.id);
      const seq = id === null ? null : await readEventSequence(pool, tenant_id, id);
      if (seq === null) throw noSuchEvent(request.params.id);
      const facts = await readFactsOfEvent(pool, tenant_id, seq, deliveriesOfEvent_max);
      return { data: facts.map(toDeliveryView), next_cursor: null };
    },
  );
}

function noSuchEvent(id: string): HubError {
  return new HubError(
    'not_found',
    `There is no event ${id}; one published a moment ago may still be on its way.`,
  );
}
