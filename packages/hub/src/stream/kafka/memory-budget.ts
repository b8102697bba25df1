/** Bytes of fetched records held for all partitions of one consumer. */
export class MemoryBudget {
  readonly max_bytes: number;
  #used_bytes = 0;

  constructor(max_bytes: number) {
    this.max_bytes = max_bytes;
  }

  get used_bytes(): number {
    return this.#used_bytes;
  }

  get free_bytes(): number {
    return Math.max(0, this.max_bytes - this.#used_bytes);
  }

  add(bytes: number): void {
    this.#used_bytes += bytes;
  }

  remove(bytes: number): void {
    this.#used_bytes -= bytes;
  }
}
