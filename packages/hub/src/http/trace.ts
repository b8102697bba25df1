import { randomBytes } from 'node:crypto';

const traceParent = /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}/;
const noTrace = '0'.repeat(32);

export function newTraceId(): string {
  return randomBytes(16).toString('hex');
}

/** The trace id of a valid `traceparent`, else a new one. */
export function traceIdOf(header: string | string[] | undefined): string {
  const given = typeof header === 'string' ? traceParent.exec(header)?.[1] : undefined;
  return given !== undefined && given !== noTrace ? given : newTraceId();
}
