import type { Permission, Principal } from './principal.ts';

/** What every route finds on its request, and what it may declare about itself. */
declare module 'fastify' {
  interface FastifyRequest {
    /** Set before any handler runs, except on public routes. */
    principal: Principal;
    /** W3C trace id: 32 hex digits, the caller's own when it sent a `traceparent`. */
    trace_id: string;
  }
  interface FastifyContextConfig {
    /** Least permission for this route; without it reading needs `read` and changing needs `write`. */
    permission?: Permission | 'public';
  }
}
