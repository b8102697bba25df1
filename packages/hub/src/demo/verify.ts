import { createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';

/** Older or newer messages are refused, so that a recorded one cannot be sent again. */
const age_seconds_max = 300;

/**
 * What every receiver should do with a delivery before it trusts it (Standard Webhooks): one of the
 * signatures is the HMAC-SHA256 of `id.timestamp.body`, and the timestamp is recent. Written as a
 * tenant would write it, without the hub's own signing code.
 */
export function isSignatureValid(
  headers: IncomingHttpHeaders,
  body: Buffer,
  secret: string,
): boolean {
  const id = String(headers['webhook-id']);
  const timestamp = String(headers['webhook-timestamp']);
  if (!(Math.abs(Date.now() / 1000 - Number(timestamp)) <= age_seconds_max)) return false;
  const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
  const expected = createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest();
  return String(headers['webhook-signature'])
    .split(' ')
    .some((signature) => {
      const [version, value = ''] = signature.split(',');
      const given = Buffer.from(value, 'base64');
      return (
        version === 'v1' && given.length === expected.length && timingSafeEqual(given, expected)
      );
    });
}
