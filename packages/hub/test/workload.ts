import {
  type Attributes,
  defaultRules,
  encodeRecord,
  toCloudEventJson,
} from '@streaming-hub/contract';
import { catalogueEvent } from '@streaming-hub/contract/fixtures';
import type { HubProcess, Receiver } from '@streaming-hub/testkit';
import { until } from '@streaming-hub/testkit';
import { uuidv7 } from 'uuidv7';
import type { OutgoingRecord } from '../src/stream/index.ts';

/** What the whole-hub tests share: tenants, subscriptions, events and the count at the end. */

export interface Wanted {
  readonly id: string;
  readonly path: string;
  readonly tenant_id: string;
  readonly ordering: 'fifo' | 'keyed' | 'unordered';
}

/** Hubs that share a database need one key-encryption key; its variable is passed on to them. */
export const sharedKey = { KEK_REF: 'TEST_KEK' };
process.env['TEST_KEK'] = Buffer.alloc(32, 7).toString('base64');

export const quickRetries = Array.from({ length: 12 }, () => 0.3);

/** One subscription per ordering for each tenant, each on a path of its own, verified. */
export async function subscribeAll(
  hub: HubProcess,
  receiver: Receiver,
  tenants: readonly string[],
): Promise<Wanted[]> {
  const wanted: Wanted[] = [];
  for (const tenant_id of tenants) {
    for (const ordering of ['fifo', 'keyed', 'unordered'] as const) {
      const path = `/${tenant_id}/${ordering}`;
      const made = await hub.request(
        'POST',
        '/v1/subscriptions',
        {
          destination: { url: `${receiver.url}${path}` },
          event_types: ['*'],
          ordering,
          hold_seconds: null,
          retry_schedule_seconds: quickRetries,
        },
        { 'x-tenant-id': tenant_id },
      );
      if (made.status !== 201) throw new Error(JSON.stringify(made.body));
      const id = made.body['id'] as string;
      await until(async () => {
        const seen = await hub.request('GET', `/v1/subscriptions/${id}`, undefined, {
          'x-tenant-id': tenant_id,
        });
        return seen.body['verification_state'] === 'active';
      });
      wanted.push({ id, path, tenant_id, ordering });
    }
  }
  return wanted;
}

export interface TestEvent {
  readonly attributes: Attributes;
  readonly body: Buffer;
  readonly record: OutgoingRecord;
}

/** Events of one tenant in order, on one partition as an unsalted tenant's are. */
export function eventsOf(tenant_id: string, count: number): TestEvent[] {
  return Array.from({ length: count }, (_, n) => {
    const made = catalogueEvent(n, { tenant_id, now_ms: Date.now(), newId: uuidv7 });
    const attributes = {
      ...made.attributes,
      source: 'midaz',
      type: made.attributes['type'] ?? '',
      subject: `key-${n % 7}`,
    };
    attributes.type = `studio.lerian.midaz.${attributes['resourcetype' as never]}.${attributes['eventtype' as never]}`;
    const body = made.body ?? Buffer.from('{}');
    const { topic, key, value, headers } = encodeRecord(attributes, body, defaultRules);
    return { attributes, body, record: { topic, key, value, headers } };
  });
}

/** Publishes over HTTP as one batch; answers the status, 0 when there was no answer. */
export async function postEvents(
  hub: HubProcess,
  tenant_id: string,
  events: readonly TestEvent[],
): Promise<{ status: number; retry_after: string | null; type: string | null }> {
  try {
    const answer = await fetch(`${hub.url}/v1/events`, {
      method: 'POST',
      headers: {
        'content-type': 'application/cloudevents-batch+json',
        'x-tenant-id': tenant_id,
      },
      body: JSON.stringify(events.map((event) => toCloudEventJson(event.attributes, event.body))),
    });
    await answer.arrayBuffer();
    return {
      status: answer.status,
      retry_after: answer.headers.get('retry-after'),
      type: answer.headers.get('content-type'),
    };
  } catch {
    return { status: 0, retry_after: null, type: null };
  }
}

export interface Arrivals {
  readonly lost: string[];
  readonly duplicates: number;
  /** Events that first arrived after a later one of their line. */
  readonly overtaken: number;
}

/** Holds what arrived with success against what should have. `accepted`: answered with 2xx, in order, as `path id`. */
export function reckon(
  wanted: readonly Wanted[],
  events: readonly TestEvent[],
  accepted: readonly { path: string; id: string }[],
): Arrivals {
  const byPath = Map.groupBy(accepted, (one) => one.path);
  const lost: string[] = [];
  let duplicates = 0;
  let overtaken = 0;
  for (const { path, tenant_id, ordering } of wanted) {
    const arrived = (byPath.get(path) ?? []).map((one) => one.id);
    const first = [...new Set(arrived)];
    duplicates += arrived.length - first.length;
    const expected = events.filter((event) => event.attributes['tenantid'] === tenant_id);
    const seen = new Set(first);
    for (const event of expected)
      if (!seen.has(event.attributes['id'] ?? '')) lost.push(`${path} ${event.attributes['id']}`);
    if (ordering === 'unordered') continue;
    const lines =
      ordering === 'fifo'
        ? [expected]
        : [...Map.groupBy(expected, (event) => event.attributes['subject']).values()];
    for (const line of lines)
      overtaken += inversions(
        line.map((event) => event.attributes['id'] ?? ''),
        first,
      );
  }
  return { lost, duplicates, overtaken };
}

function inversions(order: readonly string[], arrived: readonly string[]): number {
  const place = new Map(order.map((id, index) => [id, index]));
  let highest = -1;
  let count = 0;
  for (const id of arrived) {
    const index = place.get(id);
    if (index === undefined) continue;
    if (index < highest) count += 1;
    highest = Math.max(highest, index);
  }
  return count;
}
