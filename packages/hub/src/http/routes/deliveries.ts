import {
  AttemptAnswer,
  DeliveryAnswer,
  decodeDeliveryId,
  HubError,
  page,
} from '@streaming-hub/contract';
import {
  type DeliveryKey,
  listDeliveries,
  readAttempts,
  readFacts,
  subscriptionNumber,
  toDeliveryView,
} from '../../deliveries/index.ts';
import { decodeCursor, encodeCursor } from '../cursor.ts';
import type { HttpParts, HubApp } from '../parts.ts';
import { asUuid, deliveriesQuery, idPath, limitOf } from '../schemas.ts';

const list = 'deliveries';
/** Twelve steps a life; more than this only after very many redrives. */
const attempts_max = 1_000;

export function deliveryRoutes(app: HubApp, parts: HttpParts): void {
  const { pool } = parts;

  app.get(
    '/v1/subscriptions/:id/deliveries',
    {
      schema: {
        params: idPath,
        querystring: deliveriesQuery,
        response: { 200: page(DeliveryAnswer) },
      },
    },
    async (request) => {
      const { cursor, state } = request.query;
      const { tenant_id } = request.principal;
      const before = cursor === undefined ? null : decodeCursor(list, cursor, 1)[0];
      const id = asUuid(request.params.id);
      const subscription_number = id && (await subscriptionNumber(pool, tenant_id, id));
      if (!subscription_number) {
        throw new HubError('not_found', `There is no subscription ${request.params.id}.`);
      }
      const found = await listDeliveries(pool, {
        subscription_number,
        state: state ?? null,
        before,
        limit: limitOf(request.query),
      });
      return {
        data: [...found.rows],
        next_cursor: found.next === null ? null : encodeCursor(list, [found.next]),
      };
    },
  );

  app.get(
    '/v1/deliveries/:id',
    { schema: { params: idPath, response: { 200: DeliveryAnswer } } },
    async (request) => {
      const { key, id } = deliveryOf(request.params.id);
      const facts = await readFacts(pool, request.principal.tenant_id, key);
      if (!facts) throw noSuchDelivery(id);
      return toDeliveryView(facts);
    },
  );

  app.get(
    '/v1/deliveries/:id/attempts',
    { schema: { params: idPath, response: { 200: page(AttemptAnswer) } } },
    async (request) => {
      const { key, id } = deliveryOf(request.params.id);
      const { tenant_id } = request.principal;
      if (!(await readFacts(pool, tenant_id, key))) throw noSuchDelivery(id);
      return {
        data: [...(await readAttempts(pool, tenant_id, key, attempts_max))],
        next_cursor: null,
      };
    },
  );
}

/** @throws HubError `not_found` for a UUID that cannot be a delivery's. */
export function deliveryOf(id: string): { readonly id: string; readonly key: DeliveryKey } {
  const key = decodeDeliveryId(id.toLowerCase());
  if (!key) throw noSuchDelivery(id);
  return { id, key };
}

export function noSuchDelivery(id: string): HubError {
  return new HubError('not_found', `There is no delivery ${id}.`);
}
