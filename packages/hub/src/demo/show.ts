import type { SubscriptionAnswer, SubscriptionWithSecret } from '@streaming-hub/contract';
import { wait } from '../base/index.ts';
import type { Api } from './api.ts';
import { castFor, introduction, type Part } from './cast.ts';
import { planFor } from './plan.ts';
import { play } from './play.ts';
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

const poll_ms = 50;
const verification_ms_max = 15_000;

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

function conclude({ screen, seconds, stop }: ShowOptions, tally: Tally): number {
  const rows = tally.summary();
  const isGood =
    tally.published > 0 && rows.every((row) => row.lost === 0 && row.valid === row.arrivals);
  screen.text(`
Published ${tally.published}, stored ${tally.stored}.

${summaryTable(rows, stop.aborted)}
`);
  // What had not arrived yet is not lost: the hub would have gone on trying.
  if (stop.aborted) return seconds === null ? 0 : 1;
  screen.text(
    isGood
      ? 'Every event arrived at every receiver that asked for it.\n'
      : 'NOT every event arrived at every receiver that asked for it.\n',
  );
  return isGood ? 0 : 1;
}
