import { type ErrorCode, HubError, toProblem } from '@streaming-hub/contract';
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { allowedMethods } from './methods.ts';
import { newTraceId } from './trace.ts';

/** Advice to a caller that met a lost database or stream. */
export const retryAfter_seconds = 1;
export const retrySoon = { 'retry-after': String(retryAfter_seconds) } as const;

/** Installs the answers for everything that goes wrong. Must run before any route is declared. */
export function installProblems(app: FastifyInstance): void {
  app.setErrorHandler((error: unknown, request, reply) => {
    const problem = toHubError(error);
    const { status } = problem;
    if (status >= 500) {
      request.log.error(
        { err: error, code: problem.code, trace_id: request.trace_id },
        'request failed',
      );
    }
    return sendProblem(request, reply, problem);
  });
  app.setNotFoundHandler((request, reply) => {
    const methods = allowedMethods(app, request.url);
    return sendProblem(
      request,
      reply,
      methods.length > 0 ? wrongMethod(methods) : notThere(request),
    );
  });
}

export function sendProblem(request: FastifyRequest, reply: FastifyReply, problem: HubError) {
  return reply
    .code(problem.status)
    .headers({ 'cache-control': 'no-store', ...problem.headers })
    .type('application/problem+json')
    .send(JSON.stringify(toProblem(problem, pathOf(request.url), request.trace_id)));
}

/** For requests that fastify refuses before it has made a request object of them. */
export function problemText(problem: HubError, url: string): string {
  return JSON.stringify(toProblem(problem, pathOf(url), newTraceId()));
}

function pathOf(url: string): string {
  return url.split('?', 1)[0] ?? url;
}

function wrongMethod(methods: readonly string[]): HubError {
  return new HubError('method_not_allowed', `Use ${methods.join(' or ')} here.`, {
    headers: { allow: methods.join(', ') },
  });
}

function notThere(request: FastifyRequest): HubError {
  return new HubError('not_found', `There is nothing at ${request.method} ${pathOf(request.url)}.`);
}

interface Translation {
  readonly code: ErrorCode;
  readonly detail: (error: Error) => string;
}

/** What fastify says about requests it cannot read, in our words. */
const frameworkErrors: Readonly<Record<string, Translation>> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: {
    code: 'unsupported_media_type',
    detail: () => 'Send the body as application/json.',
  },
  FST_ERR_CTP_BODY_TOO_LARGE: {
    code: 'payload_too_large',
    detail: () => 'Send a smaller body, or split it into several requests.',
  },
  FST_ERR_CTP_EMPTY_JSON_BODY: {
    code: 'malformed_json',
    detail: () => 'The body is empty; send a JSON document, or no content type.',
  },
  FST_ERR_CTP_INVALID_JSON_BODY: {
    code: 'malformed_json',
    detail: (error) => `The body is not valid JSON: ${error.message}`,
  },
  FST_ERR_BAD_URL: {
    code: 'malformed_request',
    detail: () => 'The path is not a valid URL path; percent-encode it.',
  },
};

/** Any thrown value as one of the errors in our table. */
export function toHubError(error: unknown): HubError {
  if (error instanceof HubError) return error;
  if (!(error instanceof Error)) return internal(error);
  const { code, statusCode } = error as Partial<FastifyError>;
  const known = code === undefined ? undefined : frameworkErrors[code];
  if (known) return new HubError(known.code, known.detail(error), { cause: error });
  if (error instanceof SyntaxError && statusCode === 400) {
    return new HubError('malformed_json', `The body is not valid JSON: ${error.message}`, {
      cause: error,
    });
  }
  if (databaseIsAway(error)) {
    return new HubError(
      'database_unavailable',
      'The database does not answer; try again shortly.',
      {
        cause: error,
        headers: retrySoon,
      },
    );
  }
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500) {
    return new HubError('malformed_request', error.message, { cause: error });
  }
  return internal(error);
}

function internal(cause: unknown): HubError {
  return new HubError(
    'internal',
    'The hub failed; the log has the reason under this trace id. Trying again may help.',
    { cause },
  );
}

/** Connection refused or lost, server shutting down, too many connections, or none free in time. */
function databaseIsAway(error: Error): boolean {
  const code = (error as { code?: unknown }).code;
  if (typeof code === 'string') {
    return /^(08...|57P0.|53300|57014|ECONN(REFUSED|RESET|ABORTED)|ENOENT|EPIPE|ETIMEDOUT)$/.test(
      code,
    );
  }
  return /^(Connection terminated|timeout exceeded when trying to connect|Client has encountered a connection error)/.test(
    error.message,
  );
}
