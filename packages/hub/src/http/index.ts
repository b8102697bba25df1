export type { HttpParts, PublishSettings } from './parts.ts';
export type { RateLimitSettings } from './rate-limit.ts';
export type { Readiness, ReadinessCheck, ReadinessReport } from './readiness.ts';
export { createReadiness } from './readiness.ts';
export { buildHttpServer } from './server.ts';
export type { HttpService, HttpServiceOptions } from './service.ts';
export { createHttpService } from './service.ts';
