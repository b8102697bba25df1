import type { SubscriptionAnswer, SubscriptionWithSecret } from '@streaming-hub/contract';
import { wait } from '../base/index.ts';
import type { Api } from './api.ts';
import { observe } from './observer.ts';
import { flakySchedule_seconds, type Plan, planFor } from './plan.ts';
import { produce } from './producer.ts';
import { type Arrival, type Receiver, startReceiver } from './receiver.ts';
import { type Screen, summaryTable } from './screen.ts';
import { Tally } from './tally.ts';

export interface ShowOptions {
  readonly api: Api;
  readonly screen: Screen;
  readonly tenant_id: string;
  readonly seconds: number | null;
  readonly stop: AbortSignal;
}

interface Part {
  readonly name: string;
  readonly manner: string;
  readonly event_types: readonly string[];
  readonly refuses: (n: number) => boolean;
  /** Of its subscription, beside URL and event types. */
  readonly wishes: Readonly<Record<string, unknown>>;
}

function castFor(plan: Plan): readonly Part[] {
  const never = () => false;
  return [
    {
      name: 'healthy',
      manner: 'answers at once',
      event_types: ['*'],
      refuses: never,
      wishes: {},
    },
    {
      name: 'flaky',
      manner: 'fails every third request',
      event_types: ['transaction.*'],
      refuses: (n) => n % 3 === 0,
      wishes: { retry_schedule_seconds: flakySchedule_seconds },
    },
    {
      name: 'offline',
      manner: `goes away for ${plan.outage_ms / 1000} s, then comes back`,
      event_types: ['transaction.*', 'balance.*'],
      refuses: never,
      // Strict order: while one event waits, those behind it wait as well and cost no tries.
      wishes: { retry_schedule_seconds: plan.outageSchedule_seconds, hold_seconds: null },
    },
  ];
}

const poll_ms = 50;
const verification_ms_max = 15_000;
/** The three things to try scroll away; one of them comes back this often. */
const hint_ms = 30_000;

/** The whole play on a running hub; answers the exit code. */
export async function show(options: ShowOptions): Promise<number> {
  const { api, screen, stop } = options;
  const plan = planFor(options.seconds);
  const tally = new Tally();
  const cast = castFor(plan);
  const receivers = new Map<string, Receiver>();
  const subscriptions = new Map<string, string>();
  try {
    for (const part of cast) {
      tally.addReceiver(part.name, part.event_types);
      const onArrival = (arrival: Arrival) => tellArrival(part.name, arrival, tally, screen);
      const receiver = await startReceiver({ refuses: part.refuses, onArrival });
      receivers.set(part.name, receiver);
      subscriptions.set(part.name, await subscribe(api, part, receiver, stop));
    }
    const offline = {
      receiver: receivers.get('offline') as Receiver,
      subscription_id: subscriptions.get('offline') ?? '',
    };
    screen.text(introduction(api.url, cast, subscriptions, options.seconds));
    screen.begin();
    await play({ ...options, plan, tally, offline });
  } finally {
    for (const receiver of receivers.values()) await receiver.goDown();
  }
  return conclude(options, tally);
}

async function subscribe(
  api: Api,
  part: Part,
  receiver: Receiver,
  stop: AbortSignal,
): Promise<string> {
  const made = await api.post<SubscriptionWithSecret>('/v1/subscriptions', {
    name: part.name,
    destination: { url: receiver.url },
    event_types: part.event_types,
    ...part.wishes,
  });
  receiver.useSecret(made.secret);
  const deadline_ms = performance.now() + verification_ms_max;
  while (!stop.aborted) {
    const now = await api.get<SubscriptionAnswer>(`/v1/subscriptions/${made.id}`);
    if (now.verification_state === 'active') break;
    if (now.verification_state === 'failed' || performance.now() > deadline_ms)
      throw new Error(`${part.name} could not be verified: ${now.verification_reason}`);
    await wait(poll_ms, stop);
  }
  return made.id;
}

function tellArrival(name: string, arrival: Arrival, tally: Tally, screen: Screen): void {
  tally.addArrival(name, arrival);
  const event = tally.event(arrival.event_id, arrival.event_type);
  const to = `→ ${name.padEnd(7)}`;
  const { attempt, isValid, isAccepted } = arrival;
  event.whenStored(() => {
    if (!isValid) screen.line('failed', event, `${to}  SIGNATURE NOT VALID`);
    else if (!isAccepted) screen.line('failed', event, `${to}  try ${attempt}: answered 500`);
    else if (attempt === 1) screen.line('delivered', event, `${to}  signature valid`);
    else screen.line('retried', event, `${to}  delivered by try ${attempt}, signature valid`);
  });
}

interface Scene extends ShowOptions {
  readonly plan: Plan;
  readonly tally: Tally;
  readonly offline: { readonly receiver: Receiver; readonly subscription_id: string };
}

/** Publishing, observing and the outage, side by side, until the plan or Ctrl-C ends it. */
async function play(scene: Scene): Promise<void> {
  const { api, screen, tally, plan, offline, stop } = scene;
  const ending = new AbortController();
  const ended = AbortSignal.any([stop, ending.signal]);
  const published =
    plan.publishUntil_ms === null
      ? ended
      : AbortSignal.any([ended, AbortSignal.timeout(plan.publishUntil_ms)]);
  let isAway = false;
  const sideBySide = [
    produce({ ...scene, publishEvery_ms: plan.publishEvery_ms }, published),
    observe(
      {
        api,
        tally,
        screen,
        offline: { name: 'offline', subscription_id: offline.subscription_id },
        mayRedrive: () => !isAway,
      },
      ended,
    ),
    outage(scene, ended, (away) => {
      isAway = away;
    }),
    remind(scene, ended),
  ];
  try {
    await Promise.race([untilDone(plan, tally, stop), ...sideBySide.map(neverUnlessFailed)]);
  } finally {
    ending.abort();
    await Promise.allSettled(sideBySide);
  }
}

async function outage(
  { plan, screen, tally, offline }: Scene,
  ended: AbortSignal,
  setAway: (away: boolean) => void,
): Promise<void> {
  await wait(plan.outageFrom_ms, ended);
  if (ended.aborted) return;
  setAway(true);
  await offline.receiver.goDown();
  screen.line('offline', null, `offline closes its port for ${plan.outage_ms / 1000} s`);
  await wait(plan.outage_ms, ended);
  if (ended.aborted) return;
  const waiting = tally.missing('offline');
  await offline.receiver.comeBack();
  setAway(false);
  screen.line('back', null, `offline is there again; ${waiting} events wait for it`);
  while (!ended.aborted && tally.missing('offline') > 0) await wait(poll_ms, ended);
  if (!ended.aborted)
    screen.line('recovered', null, `offline has all ${waiting} events that waited, none lost`);
}

async function remind({ api, plan, screen }: Scene, ended: AbortSignal): Promise<void> {
  if (plan.end_ms !== null) return;
  for (let n = 0; ; n++) {
    await wait(hint_ms, ended);
    if (ended.aborted) return;
    const commands = thingsToTry(api.url);
    screen.line('try_this', null, commands[n % commands.length] ?? '');
  }
}

/** The planned end, or as much later as it takes until everything has arrived, within limits. */
async function untilDone(plan: Plan, tally: Tally, stop: AbortSignal): Promise<void> {
  await wait(plan.end_ms ?? 2 ** 31 - 1, stop);
  const latest_ms = performance.now() + plan.grace_ms;
  const isDone = () => tally.isComplete() && tally.stored >= tally.published;
  while (!stop.aborted && !isDone() && performance.now() < latest_ms) await wait(poll_ms, stop);
}

/** So that a part that breaks ends the demo, and one that is through does not. */
function neverUnlessFailed(part: Promise<void>): Promise<never> {
  return part.then(() => new Promise<never>(() => {}));
}

function conclude({ screen, seconds, stop }: ShowOptions, tally: Tally): number {
  const rows = tally.summary();
  const isGood =
    tally.published > 0 && rows.every((row) => row.lost === 0 && row.valid === row.arrivals);
  screen.text(`
Published ${tally.published}, stored ${tally.stored}.

${summaryTable(rows)}
`);
  if (stop.aborted) {
    screen.text('Stopped before the end: what is missing above was still on its way.\n');
    return seconds === null ? 0 : 1;
  }
  screen.text(
    isGood
      ? 'Every event arrived at every receiver that asked for it.\n'
      : 'NOT every event arrived at every receiver that asked for it.\n',
  );
  return isGood ? 0 : 1;
}

function introduction(
  url: string,
  cast: readonly Part[],
  subscriptions: ReadonlyMap<string, string>,
  seconds: number | null,
): string {
  const receivers = cast.map(
    ({ name, manner, event_types }) =>
      `  ${name.padEnd(9)}${manner.padEnd(38)}asked for ${event_types.join(', ')}\n`,
  );
  const commands = thingsToTry(url, subscriptions.get('flaky'));
  return `
A producer publishes events of a bank that does not exist. The hub stores each event once and
delivers it, signed, to every receiver that asked for its type; what fails is tried again.

${receivers.join('')}
The API is at ${url}. To try in another terminal:

${commands.map((command) => `  ${command}\n`).join('')}
${seconds === null ? 'Ctrl-C ends everything and leaves nothing behind.' : `It ends by itself in ${seconds} s.`}

`;
}

function thingsToTry(url: string, flaky_id?: string): readonly string[] {
  return [
    `curl -s '${url}/v1/events?limit=2'`,
    `curl -s ${url}/v1/events -H 'content-type: application/cloudevents+json' -d '{"source":"crm","resourcetype":"holder","eventtype":"created","data":{"name":"Ada"}}'`,
    flaky_id === undefined
      ? `curl -s ${url}/v1/subscriptions`
      : `curl -s '${url}/v1/subscriptions/${flaky_id}/deliveries?limit=3'`,
  ];
}
