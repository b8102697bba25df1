import type { IncomingHttpHeaders } from 'node:http';
import type pg from 'pg';
import type { Clock } from '../base/index.ts';
import { looksLikeApiKey } from './keys.ts';
import { createKeyLookup } from './lookup.ts';
import { isTenantId, type Principal } from './principal.ts';

export type Authenticated =
  | { readonly ok: true; readonly principal: Principal }
  /** `unauthenticated`: no or no valid credential. `forbidden`: valid, but for another tenant. `malformed`: the tenant header. */
  | {
      readonly ok: false;
      readonly problem: 'unauthenticated' | 'forbidden' | 'malformed';
      readonly detail: string;
    };

/** Turns a request's headers into the one it acts for. Throws only when the database does not answer. */
export type Authenticate = (headers: IncomingHttpHeaders) => Promise<Authenticated>;

export interface AuthenticateOptions {
  readonly mode: 'none' | 'api-key';
  readonly default_tenant_id: string;
  readonly pool: pg.Pool;
  readonly clock: Clock;
  /** Told about bookkeeping that failed; the request went on. */
  onFault: (fault: unknown) => void;
}

export function createAuthenticate(options: AuthenticateOptions): Authenticate {
  switch (options.mode) {
    case 'none':
      return async (headers) => withoutCredential(headers, options.default_tenant_id);
    case 'api-key':
      return byApiKey(options);
    default:
      return options.mode satisfies never;
  }
}

function withoutCredential(headers: IncomingHttpHeaders, default_tenant_id: string): Authenticated {
  if (!namesThisMachine(headers.host)) {
    return {
      ok: false,
      problem: 'forbidden',
      detail:
        'Without authentication the hub answers only to localhost, 127.0.0.1 and [::1], so that no web page can reach it under a name of its own; use one of these, or set STREAMING_HUB_AUTH=api-key.',
    };
  }
  const named = headers['x-tenant-id'];
  const tenant_id = typeof named === 'string' && named !== '' ? named : default_tenant_id;
  if (!isTenantId(tenant_id)) {
    return {
      ok: false,
      problem: 'malformed',
      detail:
        'X-Tenant-Id must hold 1 to 256 letters, digits, - or _ and start with a letter or digit.',
    };
  }
  return { ok: true, principal: { tenant_id, permission: 'operator', api_key_id: null } };
}

/** A page in a browser can point its own host name at loopback, but it cannot choose another Host header. */
function namesThisMachine(host: string | undefined): boolean {
  return host !== undefined && /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?$/i.test(host);
}

function byApiKey(options: AuthenticateOptions): Authenticate {
  const lookUp = createKeyLookup(options);
  return async (headers) => {
    const given = headers.authorization;
    if (given === undefined) {
      return {
        ok: false,
        problem: 'unauthenticated',
        detail: 'Send an API key: Authorization: Bearer shk_…',
      };
    }
    const key = /^Bearer +(\S+)$/i.exec(given)?.[1];
    const principal = key !== undefined && looksLikeApiKey(key) ? await lookUp(key) : null;
    if (!principal) {
      return {
        ok: false,
        problem: 'unauthenticated',
        detail: 'The API key is unknown or revoked; make one with: npm run hub -- keys create',
      };
    }
    const named = headers['x-tenant-id'];
    // A header that names another tenant is a mistake worth stopping, never a way in.
    if (typeof named === 'string' && named !== '' && named !== principal.tenant_id) {
      return {
        ok: false,
        problem: 'forbidden',
        detail: 'X-Tenant-Id names another tenant than the API key belongs to; leave it out.',
      };
    }
    return { ok: true, principal };
  };
}
