import type pg from 'pg';
import { Fifo } from '../base/index.ts';
import type { Delivery } from './model.ts';
import { markSuspect } from './statements.ts';

/**
 * Poison jobs: deliveries that take the process down. After an unclean takeover what may have been
 * in flight is under suspicion (one crash each). A suspect carries a durable mark while it is tried,
 * until its outcome is durable; marks that survive a crash count one more crash.
 *
 * The closer to being condemned, the fewer are tried at once, and the last try is made alone. So
 * the culprit is named for certain, and after a crash or two, which may have any reason, the
 * suspects on endpoints that hang do not keep all others waiting in a row.
 */
const together_max = [1, 4, 16];

interface Level {
  running: number;
  readonly waiting: Fifo<() => void>;
}

export class Suspects {
  readonly #pool: pg.Pool;
  readonly #threshold: number;
  readonly #levels = together_max.map<Level>(() => ({ running: 0, waiting: new Fifo() }));
  readonly #holding = new Map<Delivery, number>();

  /** `threshold`: crashes that condemn; at least two, because the first one names nobody. */
  constructor(pool: pg.Pool, threshold: number) {
    this.#pool = pool;
    this.#threshold = Math.max(2, threshold);
  }

  condemns(delivery: Delivery): boolean {
    return delivery.crashes >= this.#threshold;
  }

  /** Runs the attempt under its mark; `recorded` must be told when the outcome is durable. */
  async under<T>(delivery: Delivery, attempt: () => Promise<T>): Promise<T> {
    if (delivery.crashes === 0) return attempt();
    await this.#enter(delivery);
    await markSuspect(this.#pool, {
      lane_id: delivery.lane.id,
      seq: delivery.seq,
      subscription_number: delivery.subscription_number,
      shard: delivery.lane.shard,
      crashes: delivery.crashes,
    });
    return attempt();
  }

  /** Its outcome is durable, and its mark is gone with it: the next may be tried. */
  recorded(delivery: Delivery): void {
    const index = this.#holding.get(delivery);
    if (index === undefined) return;
    this.#holding.delete(delivery);
    const level = this.#levels[index] as Level;
    const next = level.waiting.shift();
    if (next) next();
    else level.running -= 1;
  }

  async #enter(delivery: Delivery): Promise<void> {
    const index = this.#threshold - 1 - delivery.crashes;
    const level = this.#levels[index];
    if (!level) return;
    if (level.running < (together_max[index] as number)) level.running += 1;
    else await new Promise<void>((resolve) => level.waiting.push(resolve));
    this.#holding.set(delivery, index);
  }
}
