import { DeadLetterAnswer, HubError, page, RedrivenAnswer } from '@streaming-hub/contract';
import type pg from 'pg';
import {
  type DeadLetterCursor,
  listDeadLetters,
  redrive,
  subscriptionNumber,
} from '../../deliveries/index.ts';
import { decodeCursor, encodeCursor } from '../cursor.ts';
import type { HttpParts, HubApp } from '../parts.ts';
import { deadLettersQuery, idPath, limitOf } from '../schemas.ts';
import { deliveryOf, noSuchDelivery } from './deliveries.ts';

const list = 'dead';

export function deadLetterRoutes(app: HubApp, parts: HttpParts): void {
  const { pool } = parts;

  app.get(
    '/v1/dead-letters',
    { schema: { querystring: deadLettersQuery, response: { 200: page(DeadLetterAnswer) } } },
    async (request) => {
      const { cursor, subscription_id } = request.query;
      const { tenant_id } = request.principal;
      const after = cursor === undefined ? null : readCursor(cursor);
      const subscription_number = subscription_id
        ? await subscriptionNumber(pool, tenant_id, subscription_id)
        : null;
      if (subscription_id && subscription_number === null) {
        throw new HubError('not_found', `There is no subscription ${subscription_id}.`);
      }
      const limit = limitOf(request.query);
      const found = await listDeadLetters(pool, { tenant_id, subscription_number, after, limit });
      return { data: [...found.rows], next_cursor: found.next && writeCursor(found.next) };
    },
  );

  // A dead letter is a delivery, so both paths name the same thing.
  for (const path of ['/v1/dead-letters/:id/redrive', '/v1/deliveries/:id/redrive']) {
    app.post(
      path,
      { schema: { params: idPath, response: { 202: RedrivenAnswer } } },
      async (request, reply) => {
        if (!isEmptyBody(request.body)) {
          throw new HubError(
            'validation_failed',
            'Redriving one delivery takes no body; leave it out.',
          );
        }
        const answer = await redriveOne(pool, request.principal.tenant_id, request.params.id);
        return reply.code(202).send(answer);
      },
    );
  }
}

async function redriveOne(pool: pg.Pool, tenant_id: string, given: string) {
  const { id, key } = deliveryOf(given);
  const result = await redrive(pool, tenant_id, key);
  switch (result.kind) {
    case 'redriven':
      return { ...result.delivery, replay_id: result.replay_id };
    case 'not_found':
      throw noSuchDelivery(id);
    case 'not_dead':
      throw new HubError(
        'conflict',
        `The delivery is ${result.state}, and only a dead letter can be redriven.`,
      );
    case 'subscription_deleted':
      throw new HubError('conflict', 'The subscription of this delivery has been deleted.');
    case 'event_expired':
      throw new HubError('conflict', 'The event of this delivery is no longer kept.');
    default:
      return result satisfies never;
  }
}

function isEmptyBody(body: unknown): boolean {
  if (body === undefined || body === null) return true;
  return typeof body === 'object' && Object.keys(body).length === 0;
}

function readCursor(cursor: string): DeadLetterCursor {
  const [dead_us, seq, subscription_number] = decodeCursor(list, cursor, 3);
  return { dead_us, seq, subscription_number };
}

function writeCursor(after: DeadLetterCursor): string {
  return encodeCursor(list, [after.dead_us, after.seq, after.subscription_number]);
}
