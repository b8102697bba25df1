import { matchesEventType } from '@streaming-hub/contract';
import { DemoEvent } from './event.ts';
import type { Arrival } from './receiver.ts';

/** What one receiver has seen. */
interface Seen {
  readonly asked: readonly string[];
  /** Event → how often it was accepted; in the order of the first time. */
  readonly accepted: Map<string, number>;
  arrivals: number;
  valid: number;
  retries: number;
}

export interface SummaryRow {
  readonly receiver: string;
  readonly expected: number;
  readonly delivered: number;
  /** Tries beyond the first, over all events. */
  readonly retries: number;
  readonly arrivals: number;
  readonly valid: number;
  readonly duplicates: number;
  readonly lost: number;
  readonly isInOrder: boolean;
}

/** Counts what was published, stored and delivered, so that nothing has to be believed. */
export class Tally {
  readonly #events = new Map<string, DemoEvent>();
  readonly #seen = new Map<string, Seen>();
  #published = 0;

  get published(): number {
    return this.#published;
  }

  get stored(): number {
    return [...this.#events.values()].filter((event) => event.sequence !== null).length;
  }

  addReceiver(name: string, asked: readonly string[]): void {
    this.#seen.set(name, { asked, accepted: new Map(), arrivals: 0, valid: 0, retries: 0 });
  }

  /** A short number for an event, the same wherever it shows up. */
  event(id: string, event_type: string): DemoEvent {
    let event = this.#events.get(id);
    if (!event) {
      event = new DemoEvent(this.#events.size + 1, event_type);
      this.#events.set(id, event);
    }
    return event;
  }

  addPublished(): void {
    this.#published += 1;
  }

  addArrival(name: string, arrival: Arrival): void {
    const seen = this.#seenBy(name);
    seen.arrivals += 1;
    if (arrival.isValid) seen.valid += 1;
    if (!arrival.isAccepted) return;
    // Tries that found a closed port never arrived; the number of the one that did tells of them.
    if (!seen.accepted.has(arrival.event_id)) seen.retries += arrival.attempt - 1;
    seen.accepted.set(arrival.event_id, (seen.accepted.get(arrival.event_id) ?? 0) + 1);
  }

  /** Events that this receiver asked for and does not have yet. */
  missing(name: string): number {
    const seen = this.#seenBy(name);
    return this.#expected(seen).filter((id) => !seen.accepted.has(id)).length;
  }

  /** Nothing is still on its way. */
  isComplete(): boolean {
    return [...this.#seen.keys()].every((name) => this.missing(name) === 0);
  }

  summary(): SummaryRow[] {
    return [...this.#seen].map(([receiver, seen]) => {
      const times = [...seen.accepted.values()];
      const sequences = [...seen.accepted.keys()].map((id) => this.#events.get(id)?.sequence ?? 0);
      return {
        receiver,
        expected: this.#expected(seen).length,
        delivered: seen.accepted.size,
        retries: seen.retries,
        arrivals: seen.arrivals,
        valid: seen.valid,
        duplicates: times.reduce((sum, count) => sum + count - 1, 0),
        lost: this.missing(receiver),
        isInOrder: sequences.every((sequence, n) => n === 0 || sequence > (sequences[n - 1] ?? 0)),
      };
    });
  }

  #expected(seen: Seen): string[] {
    return [...this.#events]
      .filter(([, { event_type }]) =>
        seen.asked.some((asked) => matchesEventType(asked, event_type)),
      )
      .map(([id]) => id);
  }

  #seenBy(name: string): Seen {
    const seen = this.#seen.get(name);
    if (!seen) throw new Error(`there is no receiver ${name}`);
    return seen;
  }
}
