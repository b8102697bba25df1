import type pg from 'pg';
import type { Delivery } from './model.ts';
import { markSuspect } from './statements.ts';

/**
 * Poison jobs: deliveries that take the process down. After an unclean takeover what may have been
 * in flight is under suspicion (one crash each). A suspect carries a durable mark while it is
 * tried; one that crashed twice is tried while no other such suspect is, so that the mark that
 * survives the next crash names the culprit and innocents are cleared by their outcome.
 */
export class Suspects {
  readonly #pool: pg.Pool;
  #alone: Promise<void> = Promise.resolve();

  constructor(pool: pg.Pool) {
    this.#pool = pool;
  }

  /** Runs the attempt under its mark. */
  async under<T>(delivery: Delivery, attempt: () => Promise<T>): Promise<T> {
    if (delivery.crashes === 0) return attempt();
    if (delivery.crashes === 1) {
      await this.#mark(delivery);
      return attempt();
    }
    const before = this.#alone;
    let free = () => {};
    this.#alone = new Promise((resolve) => {
      free = resolve;
    });
    await before;
    try {
      await this.#mark(delivery);
      return await attempt();
    } finally {
      free();
    }
  }

  #mark(delivery: Delivery): Promise<void> {
    return markSuspect(this.#pool, {
      lane_id: delivery.lane.id,
      seq: delivery.seq,
      subscription_number: delivery.subscription_number,
      shard: delivery.lane.shard,
      crashes: delivery.crashes,
    });
  }
}
