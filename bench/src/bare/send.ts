/** Comparison (a) of P1: sign and send from memory, nothing stored, a fixed number in flight. */
import { createHmac, createSecretKey } from 'node:crypto';
import { Pool } from 'undici';
import { uuidv7 } from 'uuidv7';
import { benchEvent } from '../events.ts';
import { measure, parameters } from './child.ts';

const given = parameters<{ ports: number[]; count: number; in_flight: number; path: string }>();
const pools = given.ports.map((port) => new Pool(`http://127.0.0.1:${port}`, { pipelining: 1 }));
const key = createSecretKey(Buffer.alloc(32, 7));
const events = Array.from({ length: 1_000 }, (_, n) => benchEvent(n));

function headersOf(attributes: Readonly<Record<string, string>>, body: Buffer) {
  const id = attributes['id'] as string;
  const timestamp = String(Math.floor(Date.now() / 1000));
  const mac = createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest('base64');
  return {
    'user-agent': 'streaming-hub/bench',
    'content-type': 'application/json',
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': `v1,${mac}`,
    'X-Lerian-Event-Id': id,
    'X-Lerian-Delivery-Id': uuidv7(),
    'X-Lerian-Event-Type': attributes['resourcetype'] as string,
    'X-Lerian-Attempt': '1',
    'ce-specversion': '1.0',
    'ce-id': id,
    'ce-source': attributes['source'] as string,
    'ce-type': attributes['type'] as string,
    'ce-time': attributes['time'] as string,
    'ce-schemaversion': '1.0.0',
    'ce-resourcetype': attributes['resourcetype'] as string,
    'ce-eventtype': attributes['eventtype'] as string,
    'ce-tenantid': attributes['tenantid'] as string,
    'ce-subject': attributes['subject'] as string,
  };
}

let next = 0;

async function worker(): Promise<void> {
  while (next < given.count) {
    const n = next++;
    const { attributes, body } = events[n % events.length] as (typeof events)[number];
    const pool = pools[n % pools.length] as Pool;
    const answer = await pool.request({
      path: given.path,
      method: 'POST',
      headers: headersOf(attributes, body),
      body,
    });
    await answer.body.dump();
    if (answer.statusCode !== 200) throw new Error(`status ${answer.statusCode}`);
  }
}

await measure(async () => {
  await Promise.all(Array.from({ length: given.in_flight }, worker));
  return given.count;
});
