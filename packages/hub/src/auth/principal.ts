/**
 * What a caller may do, each including those before it.
 *   read      looks at the tenant's events, deliveries and subscriptions
 *   write     publishes and redrives
 *   admin     changes subscriptions, and so where data goes and with which secret
 *   operator  sees what belongs to no tenant (/admin)
 */
export const permissions = ['read', 'write', 'admin', 'operator'] as const;
export type Permission = (typeof permissions)[number];

/** Who is calling. The tenant comes from the credential and from nowhere else. */
export interface Principal {
  readonly tenant_id: string;
  readonly permission: Permission;
  /** null without authentication. */
  readonly api_key_id: string | null;
}

export function may(principal: Principal, needed: Permission): boolean {
  return permissions.indexOf(principal.permission) >= permissions.indexOf(needed);
}

/** 1 to 256 letters, digits, dashes and underscores, the first a letter or digit. */
export function isTenantId(text: string): boolean {
  return /^[A-Za-z0-9][A-Za-z0-9_-]{0,255}$/.test(text);
}
