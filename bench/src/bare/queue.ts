/**
 * Comparison (b) of P1: a queue and nothing else. Four loops claim 200 jobs with SKIP LOCKED (event
 * joined), sign and send them, and complete them with one statement.
 */
import { createHmac, createSecretKey } from 'node:crypto';
import pg from 'pg';
import { Pool } from 'undici';
import { uuidv7 } from 'uuidv7';
import { measure, parameters } from './child.ts';

const given = parameters<{
  dsn: string;
  ports: number[];
  count: number;
  loops: number;
  batch: number;
  in_flight: number;
}>();
const pools = given.ports.map((port) => new Pool(`http://127.0.0.1:${port}`, { pipelining: 1 }));
const database = new pg.Pool({ connectionString: given.dsn, max: given.loops });
const key = createSecretKey(Buffer.alloc(32, 7));

interface Job {
  id: string;
  attributes: Record<string, string>;
  body: Buffer;
}

const claim = /* sql */ `
with c as (
  select id from bench_jobs where state = 0 and next_at <= now()
  order by next_at, id limit $1 for update skip locked)
update bench_jobs j set state = 1, lease_until = now() + interval '30 seconds', attempts = attempts + 1
from c, event_inbox e where j.id = c.id and e.tenant_id = j.tenant_id and e.ce_id = j.ce_id
returning j.id, e.attributes, e.body`;
const complete = /* sql */ `
update bench_jobs j set state = 2, status = u.status, finished_at = now()
from unnest($1::bigint[], $2::int[]) u(id, status) where j.id = u.id`;

function headersOf(attributes: Record<string, string>, body: Buffer): Record<string, string> {
  const id = attributes['id'] as string;
  const timestamp = String(Math.floor(Date.now() / 1000));
  const mac = createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest('base64');
  const headers: Record<string, string> = {
    'user-agent': 'streaming-hub/bench',
    'content-type': 'application/json',
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': `v1,${mac}`,
    'X-Lerian-Event-Id': id,
    'X-Lerian-Delivery-Id': uuidv7(),
    'X-Lerian-Event-Type': `${attributes['resourcetype']}.${attributes['eventtype']}`,
    'X-Lerian-Attempt': '1',
  };
  for (const [name, value] of Object.entries(attributes))
    if (name !== 'datacontenttype') headers[`ce-${name}`] = value;
  return headers;
}

async function send(job: Job): Promise<number> {
  const pool = pools[Number(job.id) % pools.length] as Pool;
  const answer = await pool.request({
    path: '/hook',
    method: 'POST',
    headers: headersOf(job.attributes, job.body),
    body: job.body,
  });
  await answer.body.dump();
  return answer.statusCode;
}

async function loop(): Promise<number> {
  let done = 0;
  for (;;) {
    const claimed = await database.query<Job>({
      name: 'claim',
      text: claim,
      values: [given.batch],
    });
    if (claimed.rows.length === 0) return done;
    const statuses: number[] = [];
    let next = 0;
    const sender = async () => {
      while (next < claimed.rows.length) {
        const n = next++;
        statuses[n] = await send(claimed.rows[n] as Job);
      }
    };
    await Promise.all(Array.from({ length: given.in_flight / given.loops }, sender));
    const ids = `{${claimed.rows.map((job) => job.id).join()}}`;
    await database.query({
      name: 'complete',
      text: complete,
      values: [ids, `{${statuses.join()}}`],
    });
    done += claimed.rows.length;
  }
}

await database.query('select 1');
await measure(async () => {
  const counts = await Promise.all(Array.from({ length: given.loops }, loop));
  return counts.reduce((sum, count) => sum + count, 0);
});
