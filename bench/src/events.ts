import { type Attributes, defaultRules, encodeRecord } from '@streaming-hub/contract';
import { catalogue } from '@streaming-hub/contract/fixtures';
import { uuidv7 } from 'uuidv7';

/** The workload: ten tenants, ten event types of the ledger, bodies of exactly 1 KiB. */
export const tenants = Array.from({ length: 10 }, (_, n) => `tenant-${n}`);
const bodyBytes = 1_024;

export const entries = catalogue.filter((entry) => entry.source === 'ledger').slice(0, 10);
export const typeName = (index: number): string => {
  const entry = entries[index % entries.length];
  return `${entry?.resource}.${entry?.event}`;
};

export interface BenchEvent {
  readonly attributes: Attributes;
  readonly body: Buffer;
}

/** Event `n`: tenants take turns, then types, so that every (tenant, type) gets the same share. */
export function benchEvent(n: number): BenchEvent {
  return eventOf(tenants[n % tenants.length] as string, Math.floor(n / tenants.length));
}

/** The body carries the monotonic time at which it was made; every process of the machine shares that clock. */
export function eventOf(tenant_id: string, type: number): BenchEvent {
  const entry = entries[type % entries.length];
  if (!entry) throw new Error('the catalogue has no ledger events');
  const id = uuidv7();
  const time = new Date().toISOString();
  const head = `{"sent_ns":"${process.hrtime.bigint()}","id":"${id}","organization_id":"019bc1f1-8600-7000-8000-000000000001","status":{"code":"ACTIVE","description":null},"amount":"${type}.00","asset_code":"BRL","created_at":"${time}","note":"`;
  const body = Buffer.alloc(bodyBytes, 'x');
  const used = body.write(head);
  body.write('"}', bodyBytes - 2);
  if (used > bodyBytes - 2) throw new Error('the payload is larger than the workload says');
  return {
    attributes: {
      specversion: '1.0',
      id,
      source: entry.source,
      type: `studio.lerian.${entry.source}.${entry.resource}.${entry.event}`,
      time,
      schemaversion: '1.0.0',
      resourcetype: entry.resource,
      eventtype: entry.event,
      tenantid: tenant_id,
      subject: id,
      datacontenttype: 'application/json',
    },
    body,
  };
}

export function recordOf(event: BenchEvent) {
  return encodeRecord(event.attributes, event.body, defaultRules);
}

export const benchTopic = recordOf(eventOf('tenant-0', 0)).topic;
