import { createHmac, randomBytes } from 'node:crypto';

const prefix = 'whsec_';
const secret_bytes = 32;

/** A new signing secret: `whsec_` and 32 random bytes in base64. */
export function newWebhookSecret(): string {
  return prefix + randomBytes(secret_bytes).toString('base64');
}

/**
 * Signs `id.timestamp.body` as Standard Webhooks v1 says: HMAC-SHA256 under the decoded secret.
 * Answers `v1,<base64>`. Throws a RangeError for something that is not a `whsec_` secret.
 */
export function signWebhook(
  secret: string,
  id: string,
  timestamp_seconds: number,
  body: Buffer,
): string {
  const key = Buffer.from(secret.slice(prefix.length), 'base64');
  if (!secret.startsWith(prefix) || key.length === 0) {
    throw new RangeError('A signing secret begins with whsec_ and goes on in base64.');
  }
  const mac = createHmac('sha256', key).update(`${id}.${timestamp_seconds}.`).update(body);
  return `v1,${mac.digest('base64')}`;
}
