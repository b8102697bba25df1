/**
 * Comparison of P2: the same rows (an event and a delivery each) in batches of 500, from memory,
 * bodies as one binary parameter. No stream, no matching, no positions, no dedupe by week.
 */
import pg from 'pg';
import { benchEvent } from '../events.ts';
import { measure, parameters } from './child.ts';

const given = parameters<{ dsn: string; count: number; batch: number; writers: number }>();
const database = new pg.Pool({ connectionString: given.dsn, max: given.writers });

await database.query(/* sql */ `
  create table bench_events (tenant_id text not null, ce_id uuid not null, seq bigint not null, origin text not null,
    event_type text not null, attributes json not null, body bytea, received_at timestamptz not null default now(),
    primary key (tenant_id, ce_id));
  create index on bench_events (tenant_id, seq);
  create table bench_deliveries (lane_id integer not null, seq bigint not null, subscription_number integer not null,
    tenant_id text not null, ce_id uuid not null, primary key (lane_id, seq, subscription_number));
  create sequence bench_seq`);

const insert = /* sql */ `
with e as materialized (
  select nextval('bench_seq') as seq, u.* from unnest($1::text[], $2::uuid[], $3::text[], $4::int[], $5::int[], $6::int[], $7::int[])
    u(tenant_id, ce_id, event_type, lane_id, at, attributes, body)),
i as (insert into bench_events (tenant_id, ce_id, seq, origin, event_type, attributes, body)
  select tenant_id, ce_id, seq, 'ledger', event_type, convert_from(substr($8::bytea, at, attributes), 'UTF8')::json,
    substr($8::bytea, at + attributes, body) from e)
insert into bench_deliveries select lane_id, seq, lane_id, tenant_id, ce_id from e`;

// Made before the clock starts: the cost of making events is not the cost of storing them.
const made = Array.from({ length: given.count }, (_, n) => benchEvent(n));
let next = 0;

async function writer(): Promise<void> {
  while (next < given.count) {
    const start = next;
    next = Math.min(given.count, next + given.batch);
    const events = made.slice(start, next);
    const documents = events.map((event) => Buffer.from(JSON.stringify(event.attributes)));
    const starts: number[] = [];
    let at = 1;
    for (const [n, event] of events.entries()) {
      starts.push(at);
      at += (documents[n] as Buffer).length + event.body.length;
    }
    const list = (values: readonly (string | number)[]) => `{${values.join()}}`;
    await database.query({
      name: 'insert',
      text: insert,
      values: [
        list(events.map(({ attributes }) => attributes['tenantid'] as string)),
        list(events.map(({ attributes }) => attributes['id'] as string)),
        list(
          events.map(
            ({ attributes }) => `${attributes['resourcetype']}.${attributes['eventtype']}`,
          ),
        ),
        list(events.map((_, n) => (start + n) % 100)),
        list(starts),
        list(documents.map((document) => document.length)),
        list(events.map(({ body }) => body.length)),
        Buffer.concat(events.flatMap((event, n) => [documents[n] as Buffer, event.body])),
      ],
    });
  }
}

await measure(async () => {
  await Promise.all(Array.from({ length: given.writers }, writer));
  return given.count;
});
