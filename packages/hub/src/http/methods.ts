import type { FastifyInstance } from 'fastify';

interface KnownRoute {
  readonly method: string;
  readonly pattern: RegExp;
}

const routesOf = new WeakMap<object, KnownRoute[]>();

/** Remembers every declared route, so that a wrong method can be told from a wrong path. */
export function rememberRoutes(app: FastifyInstance): void {
  const known: KnownRoute[] = [];
  routesOf.set(app.server, known);
  app.addHook('onRoute', (route) => {
    const pattern = pathPattern(route.url);
    for (const method of [route.method].flat()) known.push({ method, pattern });
  });
}

function pathPattern(path: string): RegExp {
  const segments = path.split('/').map((segment) => {
    if (segment === '*') return '.*';
    if (segment.startsWith(':')) return '[^/]+';
    return segment.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  });
  return new RegExp(`^${segments.join('/')}$`);
}

/** Methods that the path of this URL does have; empty when the path is unknown. */
export function allowedMethods(app: FastifyInstance, url: string): readonly string[] {
  const path = url.split('?', 1)[0] ?? url;
  const known = routesOf.get(app.server) ?? [];
  const methods = known.filter((route) => route.pattern.test(path)).map((route) => route.method);
  return [...new Set(methods)].toSorted();
}
