import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type HubProcess, runRefusedHub, startHubProcess, until } from '@streaming-hub/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Ledger, openLedger, say } from './ledger.ts';
import { eventsOf, postEvents, subscribeAll, type TestEvent, type Wanted } from './workload.ts';

const tenants = ['t1', 't2'];
const eventsPerCall = 10;
const kills = 2;
/** Attempts in flight, and outcomes that were answered but not yet durable. */
const repeatsPerKill_max = 128 + 600;

let ledger: Ledger;
let hub: HubProcess;
let wanted: Wanted[];
const acknowledged: TestEvent[] = [];

beforeAll(async () => {
  ledger = await openLedger({ fails: 0.02, delay_ms: () => Math.random() * 20 });
  hub = await startHubProcess({});
  wanted = await subscribeAll(hub, ledger.receiver, tenants);
});

afterAll(async () => {
  await hub?.kill();
  hub?.discard();
  await ledger.receiver.close();
});

/** Publishes the same events until they are acknowledged, as a careful producer does. */
async function publish(tenant: string, events: readonly TestEvent[]): Promise<void> {
  await until(async () => (await postEvents(hub, tenant, events)).status === 202, 60_000);
  acknowledged.push(...events);
}

async function allDelivered(timeout_ms: number): Promise<void> {
  const missing = new Set(
    wanted.flatMap((each) =>
      acknowledged
        .filter((event) => event.attributes['tenantid'] === each.tenant_id)
        .map((event) => `${each.path} ${event.attributes['id']}`),
    ),
  );
  await until(() => {
    for (const one of ledger.accepted) missing.delete(`${one.path} ${one.id}`);
    return missing.size === 0;
  }, timeout_ms).catch(() => undefined);
}

test('kill -9 under load: delivery goes on at once after the start, nothing is lost', async () => {
  const resumed_ms: number[] = [];
  for (let kill = 0; kill < kills; kill += 1) {
    let killed = false;
    const publishing = tenants.map(async (tenant) => {
      while (!killed) await publish(tenant, eventsOf(tenant, eventsPerCall));
    });
    const before = ledger.accepted.length;
    await until(() => ledger.accepted.length > before + 150, 30_000);
    killed = true;
    await hub.kill();
    const seen = ledger.receiver.received;
    hub = await hub.restart();
    const ready_ms = performance.now();
    await until(() => ledger.receiver.received > seen, 30_000);
    resumed_ms.push(Math.round(performance.now() - ready_ms));
    await Promise.all(publishing);
    const asked_ms = performance.now();
    const [fresh] = eventsOf('t1', 1);
    if (!fresh) throw new Error('no event');
    await publish('t1', [fresh]);
    await until(() => ledger.receiver.countOf(fresh.attributes['id'] ?? '') > 0, 30_000);
    resumed_ms.push(Math.round(performance.now() - asked_ms));
    await allDelivered(60_000);
  }
  const arrivals = ledger.reckon(wanted, acknowledged);
  say(
    `embedded hub killed ${kills} times, ${acknowledged.length * 3} deliveries`,
    arrivals,
    `; first attempt after the start, then of a fresh event [ms]: ${resumed_ms.join(' ')}`,
  );
  expect(arrivals.lost.slice(0, 3)).toEqual([]);
  expect(arrivals.overtaken).toBe(0);
  expect(arrivals.duplicates).toBeLessThanOrEqual(kills * repeatsPerKill_max);
  // The leases of the process that was killed would last 15 s, its membership of the group 10 s.
  expect(Math.max(...resumed_ms)).toBeLessThan(4_000);
}, 150_000);

test('a clean restart keeps everything and repeats nothing', async () => {
  await allDelivered(30_000);
  const before = ledger.accepted.length;
  const address = wanted[0]?.id;
  expect(await hub.stop()).toBe(0);
  hub = await hub.restart();
  const tenant = { 'x-tenant-id': 't1' };
  const kept = await hub.request('GET', `/v1/subscriptions/${address}`, undefined, tenant);
  expect(kept.status).toBe(200);
  expect(kept.body['verification_state']).toBe('active');
  const [first] = acknowledged;
  const event = await hub.request('GET', `/v1/events/${first?.attributes['id']}`, undefined, {
    'x-tenant-id': first?.attributes['tenantid'] ?? '',
  });
  expect(event.status).toBe(200);
  await publish('t1', eventsOf('t1', 1));
  await allDelivered(20_000);
  expect(ledger.accepted.length).toBe(before + 3);
}, 60_000);

test('killing the Postgres of an embedded hub under load loses and repeats nothing', async () => {
  const before = ledger.reckon(wanted, acknowledged).duplicates;
  const pid = Number.parseInt(
    readFileSync(join(hub.data_dir, 'postgres', 'cluster', 'postmaster.pid'), 'utf8'),
    10,
  );
  let loading = true;
  const publishing = tenants.map(async (tenant) => {
    while (loading) await publish(tenant, eventsOf(tenant, eventsPerCall));
  });
  const delivered = ledger.accepted.length;
  await until(() => ledger.accepted.length > delivered + 60, 30_000);
  process.kill(pid, 'SIGKILL');
  const killed = acknowledged.length;
  await until(() => acknowledged.length > killed + 40, 30_000);
  loading = false;
  await Promise.all(publishing);
  await allDelivered(60_000);
  const arrivals = ledger.reckon(wanted, acknowledged);
  say('Postgres of an embedded hub killed once', {
    ...arrivals,
    duplicates: arrivals.duplicates - before,
  });
  expect(arrivals.lost.slice(0, 3)).toEqual([]);
  expect(arrivals.overtaken).toBe(0);
  expect(arrivals.duplicates).toBe(before);
}, 120_000);

test('a second hub on the same folder is refused in one sentence', async () => {
  const { code, output } = await runRefusedHub({}, hub.data_dir);
  expect(code).toBe(1);
  expect(output.trim().split('\n')).toHaveLength(1);
  expect(output).toContain('in use by another hub');
  expect(output).not.toContain('    at ');
  // The first one is none the worse for it.
  expect((await hub.request('GET', '/readyz')).status).toBe(200);
}, 60_000);
