import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { HubError } from '@streaming-hub/contract';
import {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyReply,
  fastify,
  LogController,
} from 'fastify';
import { installIdentity } from './identify.ts';
import { rememberRoutes } from './methods.ts';
import { installObservation } from './observe.ts';
import type { HttpParts } from './parts.ts';
import { installProblems, problemText, toHubError } from './problems.ts';
import { deadLetterRoutes } from './routes/dead-letters.ts';
import { deliveryRoutes } from './routes/deliveries.ts';
import { eventRoutes } from './routes/events.ts';
import { operationsRoutes } from './routes/operations.ts';
import { publishRoutes } from './routes/publish.ts';
import { quarantineRoutes } from './routes/quarantine.ts';
import { noQuery } from './schemas.ts';
import { validatorCompiler } from './validation.ts';

const body_bytes_max = 256 * 1024;
const pathSegmentCharacters_max = 512;
/** The whole request must have arrived by then. */
const requestTimeout_ms = 30_000;
const keepAlive_ms = 72_000;

/** Builds the server; it listens to nothing until someone calls `listen` (see `createHttpService`). */
export function buildHttpServer(parts: HttpParts): FastifyInstance {
  const app = fastify({
    loggerInstance: parts.log as FastifyBaseLogger,
    // One line of our own a request (see observe.ts).
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: body_bytes_max,
    routerOptions: { maxParamLength: pathSegmentCharacters_max },
    requestTimeout: requestTimeout_ms,
    keepAliveTimeout: keepAlive_ms,
    forceCloseConnections: 'idle',
    frameworkErrors: (error, request, reply) => {
      const problem = toHubError(error);
      // Its type depends on the route's schema, and there is no route yet.
      const plain = reply as unknown as FastifyReply;
      void plain
        .code(problem.status)
        .type('application/problem+json')
        .send(problemText(problem, request.url));
    },
    clientErrorHandler(error, socket) {
      if (error.code === 'ECONNRESET' || !socket.writable) return;
      socket.end(rawBadRequest());
    },
  });
  app.setValidatorCompiler(validatorCompiler);
  // Answers are sent as they were made; their schemas describe them and tests hold them to it.
  app.setSerializerCompiler(() => (answer) => JSON.stringify(answer));
  refuseUnknownQuery(app);
  rememberRoutes(app);
  installProblems(app);
  installIdentity(app, parts.authenticate);
  installObservation(app, parts.metrics);

  const typed = app.withTypeProvider<TypeBoxTypeProvider>();
  operationsRoutes(typed, parts);
  eventRoutes(typed, parts);
  deliveryRoutes(typed, parts);
  deadLetterRoutes(typed, parts);
  quarantineRoutes(typed, parts);
  // Its own scope: there a body stays bytes, whatever its content type.
  app.register(async (scope) =>
    publishRoutes(scope.withTypeProvider<TypeBoxTypeProvider>(), parts),
  );
  for (const routes of parts.routes) app.register(routes);
  return app;
}

/** A route that declares no query takes none: an unknown parameter is refused, never ignored. */
function refuseUnknownQuery(app: FastifyInstance): void {
  app.addHook('onRoute', (route) => {
    route.schema = { querystring: noQuery, ...route.schema };
  });
}

/** The answer to bytes that are no HTTP request at all. */
function rawBadRequest(): string {
  const body = problemText(
    new HubError('malformed_request', 'The bytes received are not a valid HTTP request.'),
    '/',
  );
  return [
    'HTTP/1.1 400 Bad Request',
    'content-type: application/problem+json',
    `content-length: ${Buffer.byteLength(body)}`,
    'connection: close',
    '',
    body,
  ].join('\r\n');
}
