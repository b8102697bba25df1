import { type HubProcess, startHubProcess, until } from '@streaming-hub/testkit';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { attemptsRecordedTwice, type Ledger, openLedger, say, watchReadiness } from './ledger.ts';
import { onStoppedHub } from './stopped-hub.ts';
import { eventsOf, postEvents, subscribeAll, type TestEvent } from './workload.ts';

const tenants = ['t1', 't2', 't3'];
const eventsPerCall = 4;

let ledger: Ledger;
let hub: HubProcess | null = null;

beforeAll(async () => {
  // Slow enough that attempts are always in flight, and a few of them for seconds.
  ledger = await openLedger({
    fails: 0.05,
    delay_ms: () => (Math.random() < 0.01 ? 2_000 : 5 + Math.random() * 40),
  });
});

afterAll(async () => {
  await hub?.kill();
  hub?.discard();
  await ledger.receiver.close();
});

/** Publishes until the hub takes no more; answers what was acknowledged. */
async function publishUntilRefused(on: HubProcess, tenant: string): Promise<TestEvent[]> {
  const acknowledged: TestEvent[] = [];
  for (;;) {
    const events = eventsOf(tenant, eventsPerCall);
    const { status } = await postEvents(on, tenant, events);
    if (status !== 202) return acknowledged;
    acknowledged.push(...events);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

test('SIGTERM under load: readiness first, attempts in flight are recorded, nothing twice afterwards', async () => {
  hub = await startHubProcess({
    PRE_STOP_DRAIN_TIMEOUT: '1s',
    DISPATCH_WORKERS: '4',
  });
  const wanted = await subscribeAll(hub, ledger.receiver, tenants);
  const readiness = watchReadiness(hub);
  const publishing = tenants.map((tenant) => publishUntilRefused(hub as HubProcess, tenant));
  await until(() => ledger.accepted.length > 100 && ledger.open > 3, 20_000);

  const code = await hub.stop();
  await readiness.stop();
  const events = (await Promise.all(publishing)).flat();
  const delivered = ledger.accepted.length;
  expect(code).toBe(0);
  const draining = readiness.answers.findIndex((answer) => answer.state === 'draining');
  expect(readiness.answers[draining]).toEqual({ status: 503, state: 'draining', failing: [] });
  expect(readiness.answers[draining - 1]?.status).toBe(200);
  expect(readiness.answers.slice(draining).every((answer) => answer.status === 503)).toBe(true);
  expect(ledger.open).toBe(0);

  await onStoppedHub(hub, async (pool) => {
    const rows = async (text: string) => (await pool.query<{ n: number }>(text)).rows[0]?.n;
    expect(
      await rows(`select count(*)::int as n from delivery_attempts where outcome = 'delivered'`),
    ).toBe(delivered);
    expect(await attemptsRecordedTwice(pool)).toBe(0);
    expect(await rows('select count(*)::int as n from suspects')).toBe(0);
    expect(
      await rows(
        `select count(*)::int as n from shards where owner is not null or lease_until <> '-infinity'`,
      ),
    ).toBe(0);
    expect(await rows('select count(*)::int as n from processes')).toBe(0);
  });

  hub = await hub.restart();
  const total = events.length * 3;
  const expected = new Set(
    wanted.flatMap((each) =>
      events
        .filter((event) => event.attributes['tenantid'] === each.tenant_id)
        .map((event) => `${each.path} ${event.attributes['id']}`),
    ),
  );
  await until(() => {
    for (const one of ledger.accepted) expected.delete(`${one.path} ${one.id}`);
    return expected.size === 0;
  }, 60_000).catch(() => undefined);
  const arrivals = ledger.reckon(wanted, events);
  say(`drained once, ${total} deliveries, ${delivered} of them before`, arrivals);
  expect({ ...arrivals, lost: arrivals.lost.slice(0, 3) }).toEqual({
    lost: [],
    duplicates: 0,
    overtaken: 0,
  });
}, 120_000);
