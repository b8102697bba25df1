import { Fifo } from '../base/index.ts';
import type { Queue } from './model.ts';

export type SlotClass = 'fast' | 'slow' | 'retry';

interface Tenant {
  readonly queues: Fifo<Queue>;
  listed: boolean;
}

/**
 * Who is next: tenants take turns, and within a tenant its queues do. One delivery per turn, so a
 * backlog of a million delays another tenant's event by one turn at most.
 */
export class FairRing {
  readonly #kind: SlotClass;
  readonly #tenants = new Map<string, Tenant>();
  readonly #turns = new Fifo<Tenant>();

  constructor(kind: SlotClass) {
    this.#kind = kind;
  }

  /** Lists the queue unless it is listed already. */
  offer(queue: Queue): void {
    if (queue.listed[this.#kind]) return;
    queue.listed[this.#kind] = true;
    const name = queue.lane.tenant_id;
    let tenant = this.#tenants.get(name);
    if (!tenant) this.#tenants.set(name, (tenant = { queues: new Fifo(), listed: false }));
    tenant.queues.push(queue);
    if (tenant.listed) return;
    tenant.listed = true;
    this.#turns.push(tenant);
  }

  /** The next queue in turn, taken off the ring; offer it again if it has more. */
  take(): Queue | null {
    const tenant = this.#turns.shift();
    if (!tenant) return null;
    const queue = tenant.queues.shift() as Queue;
    queue.listed[this.#kind] = false;
    tenant.listed = tenant.queues.length > 0;
    if (tenant.listed) this.#turns.push(tenant);
    else this.#tenants.delete(queue.lane.tenant_id);
    return queue;
  }
}
