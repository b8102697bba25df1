import type { SlotClass } from './ring.ts';

/**
 * How many attempts may be in flight. Slow lanes and retries have small pools of their own, so a
 * hanging destination cannot use up the slots of healthy ones. An attempt that turns out slow
 * moves to the slow pool (even beyond its size) and gives its slot back. `ceiling` bounds the sum
 * for slow lanes and retries; for healthy ones it is four times as high, because what hangs
 * must not keep them waiting.
 */
export class Slots {
  readonly #size: Readonly<Record<SlotClass, number>>;
  readonly #used: Record<SlotClass, number> = { fast: 0, slow: 0, retry: 0 };
  readonly #ceiling: number;

  constructor(total: number) {
    const quarter = Math.max(1, Math.floor(total / 4));
    this.#size = { fast: total, slow: quarter, retry: quarter };
    this.#ceiling = total * 4;
  }

  free(kind: SlotClass): boolean {
    const ceiling = kind === 'fast' ? this.#ceiling * 4 : this.#ceiling;
    return this.#used[kind] < this.#size[kind] && this.in_flight < ceiling;
  }

  get in_flight(): number {
    return this.#used.fast + this.#used.slow + this.#used.retry;
  }

  take(kind: SlotClass): void {
    this.#used[kind] += 1;
  }

  give(kind: SlotClass): void {
    this.#used[kind] -= 1;
  }

  move(from: SlotClass, to: SlotClass): void {
    this.#used[from] -= 1;
    this.#used[to] += 1;
  }
}
