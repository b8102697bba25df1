import type {
  AttemptAnswer,
  DeadLetterAnswer,
  DeliveryAnswer,
  EventAnswer,
} from '@streaming-hub/contract';
import { wait } from '../base/index.ts';
import type { Api } from './api.ts';
import type { Screen } from './screen.ts';
import type { Tally } from './tally.ts';

export interface ObserverOptions {
  readonly api: Api;
  readonly tally: Tally;
  readonly screen: Screen;
  /** The subscription whose tries cannot be seen at its receiver, because that one is away. */
  readonly offline: { readonly name: string; readonly subscription_id: string };
  /** Whether dead letters can be given a new life already. */
  readonly mayRedrive: () => boolean;
}

/** An event on its way is looked for often, as one at a receiver is told of only after it. */
const poll_ms = { inbox: 40, deliveries: 250 };
const page_items = 200;

/** Tells what the hub has stored, tried and given up, by asking its API, until the signal aborts. */
export async function observe(options: ObserverOptions, signal: AbortSignal): Promise<void> {
  const { inbox, deliveries } = poll_ms;
  await Promise.all([
    repeat(storedEvents(options), inbox, options.screen, signal),
    repeat(failedTries(options), deliveries, options.screen, signal),
    repeat(deadLetters(options), deliveries, options.screen, signal),
  ]);
}

async function repeat(
  look: () => Promise<void>,
  every_ms: number,
  screen: Screen,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    try {
      await look();
    } catch (error) {
      if (!signal.aborted) screen.line('problem', null, (error as Error).message);
    }
    await wait(every_ms, signal);
  }
}

/** Follows the inbox by its cursor: every event once, in the order of arrival. */
function storedEvents({ api, tally, screen }: ObserverOptions): () => Promise<void> {
  let cursor: string | null = null;
  return async () => {
    let more = true;
    while (more) {
      const after: string = cursor === null ? '' : `&cursor=${cursor}`;
      const page: { data: EventAnswer[]; next_cursor: string; has_more: boolean } = await api.get(
        `/v1/events?limit=${page_items}${after}`,
      );
      for (const event of page.data) {
        const known = tally.event(event.id, `${event.resourcetype}.${event.eventtype}`);
        screen.line('stored', known, 'in the inbox');
        known.markStored(Number(event.sequence));
      }
      cursor = page.next_cursor;
      more = page.has_more;
    }
  };
}

/** Tries that never reached the receiver: only the hub knows of them. */
function failedTries({ api, tally, screen, offline }: ObserverOptions): () => Promise<void> {
  const shown = new Map<string, number>();
  return async () => {
    const { data } = await api.get<{ data: DeliveryAnswer[] }>(
      `/v1/subscriptions/${offline.subscription_id}/deliveries?state=pending&limit=${page_items}`,
    );
    for (const delivery of data) {
      if (delivery.attempts <= (shown.get(delivery.id) ?? 0)) continue;
      shown.set(delivery.id, delivery.attempts);
      const { data: attempts } = await api.get<{ data: AttemptAnswer[] }>(
        `/v1/deliveries/${delivery.id}/attempts`,
      );
      const last = attempts.at(-1);
      if (!last) continue;
      const event = await api.get<EventAnswer>(`/v1/events/${delivery.event_id}`);
      const wait_ms = Date.parse(delivery.next_attempt_at ?? '') - Date.now();
      const next = wait_ms > 0 ? `, again in ${(wait_ms / 1000).toFixed(1)} s` : '';
      const problem = (last.error?.code ?? last.outcome).replaceAll('_', ' ');
      screen.line(
        'failed',
        tally.event(event.id, `${event.resourcetype}.${event.eventtype}`),
        `→ ${offline.name}  try ${last.number}: ${problem}${next}`,
      );
    }
  };
}

/** A delivery that ran out of tries is kept as a dead letter, and can be sent again by hand. */
function deadLetters({ api, screen, mayRedrive }: ObserverOptions): () => Promise<void> {
  const shown = new Set<string>();
  return async () => {
    const { data } = await api.get<{ data: DeadLetterAnswer[] }>('/v1/dead-letters');
    for (const letter of data) {
      if (!shown.has(letter.id)) {
        shown.add(letter.id);
        screen.line('gave_up', null, `after ${letter.attempts} tries: kept as a dead letter`);
      }
      if (!mayRedrive()) continue;
      await api.post(`/v1/dead-letters/${letter.id}/redrive`);
      screen.line('redriven', null, 'the dead letter is sent again, on request');
    }
  };
}
