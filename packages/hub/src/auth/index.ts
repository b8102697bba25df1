import './fastify.ts';

export type { Authenticate, Authenticated, AuthenticateOptions } from './authenticate.ts';
export { createAuthenticate } from './authenticate.ts';
export type { ApiKey } from './keys.ts';
export { apiKeyPrefix, createApiKey, listApiKeys, revokeApiKey } from './keys.ts';
export type { Permission, Principal } from './principal.ts';
export { isTenantId, may, permissions } from './principal.ts';
