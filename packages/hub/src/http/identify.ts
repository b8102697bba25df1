import { HubError } from '@streaming-hub/contract';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { type Authenticate, may, type Permission } from '../auth/index.ts';
import { traceIdOf } from './trace.ts';

/**
 * Before anything else of a request is looked at: its trace id, who is calling, and whether they
 * may. A path that does not exist needs no credential to be told so.
 */
export function installIdentity(app: FastifyInstance, authenticate: Authenticate): void {
  app.decorateRequest('trace_id', '');
  app.decorateRequest('principal');
  app.addHook('onRequest', async (request, reply) => {
    request.trace_id = traceIdOf(request.headers.traceparent);
    reply.headers({ 'x-trace-id': request.trace_id, 'x-content-type-options': 'nosniff' });
    if (request.is404) return;
    refuseEncodedBody(request);
    const needed = neededPermission(request);
    if (needed === 'public') return;
    // What belongs to a tenant is kept by nobody on the way.
    reply.header('cache-control', 'no-store');
    const result = await authenticate(request.headers);
    if (!result.ok) throw refusal(result.problem, result.detail);
    if (!may(result.principal, needed)) {
      throw new HubError(
        'forbidden',
        `This needs the permission "${needed}", and the API key has "${result.principal.permission}".`,
      );
    }
    request.principal = result.principal;
  });
}

/** Bodies are kept byte for byte, so a compressed one would be stored compressed. */
function refuseEncodedBody(request: FastifyRequest): void {
  const encoding = request.headers['content-encoding'];
  if (encoding === undefined || encoding === 'identity') return;
  throw new HubError('unsupported_media_type', 'Send the body without Content-Encoding.');
}

/** What a route declares; else by its place: operators' pages, where data goes, other changes, reading. */
export function neededPermission(request: FastifyRequest): Permission | 'public' {
  const declared = request.routeOptions.config.permission;
  if (declared !== undefined) return declared;
  const path = request.routeOptions.url ?? '';
  if (path.startsWith('/admin')) return 'operator';
  if (request.method === 'GET' || request.method === 'HEAD') return 'read';
  return path.startsWith('/v1/subscriptions') ? 'admin' : 'write';
}

function refusal(problem: 'unauthenticated' | 'forbidden' | 'malformed', detail: string): HubError {
  switch (problem) {
    case 'unauthenticated':
      return new HubError('unauthorized', detail, { headers: { 'www-authenticate': 'Bearer' } });
    case 'forbidden':
      return new HubError('forbidden', detail);
    case 'malformed':
      return new HubError('validation_failed', detail, {
        errors: [{ field: 'x-tenant-id', message: detail, code: 'invalid' }],
      });
    default:
      return problem satisfies never;
  }
}
