import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import {
  AttemptAnswer,
  HubError,
  PageQuery,
  page,
  page_items_default,
  rotation_overlap_seconds_default,
  SecretRotation,
  SubscriptionAnswer,
  SubscriptionCreate,
  SubscriptionPatch,
  SubscriptionWithSecret,
} from '@streaming-hub/contract';
import type { FastifyPluginAsync, FastifyReply } from 'fastify';
import { Type } from 'typebox';
import { decodeCursor, encodeCursor } from './cursor.ts';
import type { Subscriptions } from './subscriptions.ts';
import type { NewSubscription, SubscriptionPatch as Patch, Subscription } from './types.ts';
import { subscriptionView } from './view.ts';

const IdPath = Type.Object({ id: Type.String({ maxLength: 64 }) }, { additionalProperties: false });
const Nothing = Type.Union([Type.Object({}, { additionalProperties: false }), Type.Null()]);
const RotationBody = Type.Union([SecretRotation, Type.Null()]);

export interface SubscriptionRoutesParts {
  readonly subscriptions: Subscriptions;
  /** Shown for subscriptions that set no time-out of their own. */
  readonly timeout_seconds_default: number;
}

/** `/v1/subscriptions`: the tenant is the caller's; another tenant's subscription is a 404. */
export function subscriptionRoutes(parts: SubscriptionRoutesParts): FastifyPluginAsync {
  const { subscriptions } = parts;
  const { store } = subscriptions;
  const view = (subscription: Subscription) =>
    subscriptionView(subscription, parts.timeout_seconds_default);

  return async (plain) => {
    const app = plain.withTypeProvider<TypeBoxTypeProvider>();

    app.post(
      '/v1/subscriptions',
      { schema: { body: SubscriptionCreate, response: { 201: SubscriptionWithSecret } } },
      async (request, reply) => {
        const made = await store.create(
          request.principal.tenant_id,
          request.body as NewSubscription,
        );
        subscriptions.verifier.nudge();
        reply
          .code(201)
          .header('location', `/v1/subscriptions/${made.subscription.id}`)
          .header('cache-control', 'no-store');
        return { ...view(made.subscription), secret: made.secret };
      },
    );

    app.get(
      '/v1/subscriptions',
      { schema: { querystring: PageQuery, response: { 200: page(SubscriptionAnswer) } } },
      async (request) => {
        const limit = request.query.limit ?? page_items_default;
        const after_id = request.query.cursor === undefined ? null : idIn(request.query.cursor);
        // One more than asked for tells whether another page follows.
        const found = await store.list(request.principal.tenant_id, { after_id, limit: limit + 1 });
        const shown = found.slice(0, limit);
        const last = found.length > limit ? shown.at(-1) : undefined;
        return { data: shown.map(view), next_cursor: last ? encodeCursor(last.id) : null };
      },
    );

    app.get(
      '/v1/subscriptions/:id',
      { schema: { params: IdPath, response: { 200: SubscriptionAnswer } } },
      async (request) => view(await store.get(request.principal.tenant_id, request.params.id)),
    );

    app.patch(
      '/v1/subscriptions/:id',
      {
        schema: { params: IdPath, body: SubscriptionPatch, response: { 200: SubscriptionAnswer } },
      },
      async (request) => {
        const changed = await store.change(
          request.principal.tenant_id,
          request.params.id,
          request.body as Patch,
        );
        if (changed.verification_state === 'pending') subscriptions.verifier.nudge();
        return view(changed);
      },
    );

    app.delete('/v1/subscriptions/:id', { schema: { params: IdPath } }, async (request, reply) => {
      await store.remove(request.principal.tenant_id, request.params.id);
      return reply.code(204).send();
    });

    app.post(
      '/v1/subscriptions/:id/verify',
      {
        schema: {
          params: IdPath,
          body: Type.Optional(Nothing),
          response: { 200: SubscriptionAnswer },
        },
      },
      async (request) =>
        view(await subscriptions.verifier.verify(request.principal.tenant_id, request.params.id)),
    );

    app.post(
      '/v1/subscriptions/:id/secret/rotate',
      {
        schema: {
          params: IdPath,
          body: Type.Optional(RotationBody),
          response: { 200: SubscriptionWithSecret },
        },
      },
      async (request, reply) => {
        const overlap_seconds = request.body?.overlap_seconds ?? rotation_overlap_seconds_default;
        const rotated = await store.rotateSecret(
          request.principal.tenant_id,
          request.params.id,
          overlap_seconds,
        );
        reply.header('cache-control', 'no-store');
        return { ...view(rotated.subscription), secret: rotated.secret };
      },
    );

    app.post(
      '/v1/subscriptions/:id/test',
      {
        schema: { params: IdPath, body: Type.Optional(Nothing), response: { 200: AttemptAnswer } },
      },
      async (request, reply) => {
        const subscription = await store.get(request.principal.tenant_id, request.params.id);
        return subscriptions.test(subscription, gone(reply));
      },
    );
  };
}

function idIn(cursor: string): string {
  const id = decodeCursor(cursor);
  if (id !== null) return id;
  throw new HubError(
    'invalid_cursor',
    'Take the cursor from next_cursor of this list, or leave it out to begin anew.',
  );
}

/** Aborts when the caller goes away before the answer. */
function gone(reply: FastifyReply): AbortSignal {
  const controller = new AbortController();
  reply.raw.once('close', () => controller.abort());
  return controller.signal;
}
