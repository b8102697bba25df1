import type { StoredEvent } from '../inbox/index.ts';
import type { Subscription } from './types.ts';

const sample_origin = 'streaming-hub';
const sample_resource = 'webhook';
const sample_event = 'test';

/**
 * An event that receivers can tell from real ones by its type, `webhook.test`. Never stored.
 * `type_prefix` is the contract's, `studio.lerian.` by default.
 */
export function sampleEvent(
  subscription: Subscription,
  id: string,
  now_ms: number,
  type_prefix: string,
): StoredEvent {
  const body = {
    message: 'This is a test of your subscription. No event has happened.',
    subscription_id: subscription.id,
  };
  return {
    tenant_id: subscription.tenant_id,
    id,
    sequence: now_ms * 1000,
    origin: sample_origin,
    event_type: `${sample_resource}.${sample_event}`,
    attributes: {
      specversion: '1.0',
      id,
      source: sample_origin,
      type: `${type_prefix}${sample_origin}.${sample_resource}.${sample_event}`,
      time: new Date(now_ms).toISOString(),
      schemaversion: '1.0.0',
      resourcetype: sample_resource,
      eventtype: sample_event,
      tenantid: subscription.tenant_id,
      subject: subscription.id,
      datacontenttype: 'application/json',
    },
    body: Buffer.from(JSON.stringify(body)),
  };
}
