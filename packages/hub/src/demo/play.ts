import { wait } from '../base/index.ts';
import type { Api } from './api.ts';
import { thingsToTry } from './cast.ts';
import { observe } from './observer.ts';
import type { Plan } from './plan.ts';
import { produce } from './producer.ts';
import type { Receiver } from './receiver.ts';
import type { Screen } from './screen.ts';
import type { Tally } from './tally.ts';

const poll_ms = 50;
/** The things to try scroll away; one of them comes back this often. */
const hint_ms = 30_000;

export interface Scene {
  readonly api: Api;
  readonly screen: Screen;
  readonly tenant_id: string;
  readonly stop: AbortSignal;
  readonly plan: Plan;
  readonly tally: Tally;
  readonly offline: { readonly receiver: Receiver; readonly subscription_id: string };
}

/** Publishing, observing and the outage, side by side, until the plan or Ctrl-C ends it. */
export async function play(scene: Scene): Promise<void> {
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
