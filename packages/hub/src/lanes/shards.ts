import type pg from 'pg';
import type { Clock, Service } from '../base/index.ts';
import { wait } from '../base/index.ts';

/**
 * Leases on the 64 shards. A process renews its leases every third of their length, takes free
 * ones up to its even share of the shards, and hands back what it holds beyond that share. Each
 * take-over raises the shard's token; what is written under an older token is recognised by it.
 *
 * A process sends only while `usable()`, by its own monotonic clock's idea of the lease's end minus
 * a margin, so it has fallen silent before anyone else may begin.
 */
export const shards_total = 64;

export interface Lease {
  readonly shard: number;
  readonly token: number;
}

export interface ShardListener {
  /** New leases; `unclean` are those whose last owner vanished without handing back. */
  acquired(leases: readonly Lease[], unclean: ReadonlySet<number>): void;
  /** Must stop sending for these shards, make outcomes and positions durable, and resolve. */
  releasing(shards: readonly number[]): Promise<void>;
  /** The leases have been prolonged. */
  renewed(): void;
  /** Someone else has them (or may have): forget everything about them. */
  lost(shards: readonly number[]): void;
}

export interface ShardOptions {
  readonly pool: pg.Pool;
  readonly process_id: string;
  readonly role: string;
  readonly lease_ms: number;
  readonly clock: Clock;
  readonly listener: ShardListener;
  readonly onFault: (fault: Error) => void;
}

export class Shards implements Service {
  readonly leases = new Map<number, Lease>();
  readonly #options: ShardOptions;
  readonly #abort = new AbortController();
  #loop: Promise<void> | null = null;
  /** Monotonic milliseconds. */
  #usableUntil_ms = 0;

  constructor(options: ShardOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    this.#loop ??= this.#run();
  }

  /** Hands everything back and leaves. */
  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#loop;
    const held = [...this.leases.keys()];
    if (held.length > 0) await this.#release(held).catch(this.#options.onFault);
    await this.#options.pool
      .query('delete from processes where id = $1', [this.#options.process_id])
      .catch(this.#options.onFault);
  }

  /** May what is leased be worked now? All leases are renewed together, so one deadline holds for all. */
  usable(): boolean {
    return this.#usableUntil_ms > this.#options.clock.monotonic_ms();
  }

  async #run(): Promise<void> {
    const { lease_ms, onFault } = this.#options;
    while (!this.#abort.signal.aborted) {
      let settled = false;
      try {
        await this.#renew();
        settled = await this.#balance();
      } catch (error) {
        onFault(new Error('the leases could not be renewed; trying again', { cause: error }));
      }
      await wait(settled ? lease_ms / 3 : Math.min(500, lease_ms / 6), this.#abort.signal);
    }
  }

  async #renew(): Promise<void> {
    const { pool, process_id, role, lease_ms, clock, listener } = this.#options;
    const asked_ms = clock.monotonic_ms();
    const answer = await pool.query<{ shard: number }>({
      name: 'renew-leases',
      text: /* sql */ `
        with heartbeat as (
          insert into processes (id, role, heartbeat_at) values ($1, $2, now())
          on conflict (id) do update set heartbeat_at = now())
        update shards set lease_until = now() + make_interval(secs => $3::float8)
        where owner = $1 returning shard`,
      values: [process_id, role, lease_ms / 1000],
    });
    const kept = new Set(answer.rows.map((row) => row.shard));
    const lost = [...this.leases.keys()].filter((shard) => !kept.has(shard));
    for (const shard of lost) this.leases.delete(shard);
    if (lost.length > 0) listener.lost(lost);
    this.#usableUntil_ms = this.#usableUntil(asked_ms);
    listener.renewed();
  }

  /** Moves towards the even share; true when nothing is left to move. */
  async #balance(): Promise<boolean> {
    const { pool, lease_ms } = this.#options;
    const answer = await pool.query<{ live: number }>({
      name: 'count-processes',
      text: `select count(*)::int as live from processes where role <> 'ingest' and heartbeat_at > now() - make_interval(secs => $1::float8)`,
      values: [lease_ms / 1000],
    });
    const share = Math.ceil(shards_total / Math.max(1, answer.rows[0]?.live ?? 1));
    // Which ones is left to chance, because neighbouring lanes tend to belong together.
    const surplus = shuffled(this.leases.keys()).slice(share);
    if (surplus.length > 0) await this.#release(surplus);
    const missing = share - this.leases.size;
    if (missing > 0) await this.#acquire(missing);
    return this.leases.size >= Math.floor(shards_total / Math.max(1, answer.rows[0]?.live ?? 1));
  }

  async #acquire(count: number): Promise<void> {
    const { pool, process_id, lease_ms, listener } = this.#options;
    const answer = await pool.query<{ shard: number; token: string; clean: boolean }>({
      name: 'acquire-leases',
      text: /* sql */ `
        update shards s set owner = $1, token = s.token + 1, lease_until = now() + make_interval(secs => $2::float8)
        from (select shard, lease_until = '-infinity' as clean from shards where lease_until < now()
              order by random() limit $3 for update skip locked) free
        where s.shard = free.shard returning s.shard, s.token, free.clean`,
      values: [process_id, lease_ms / 1000, count],
    });
    if (answer.rows.length === 0) return;
    const leases = answer.rows.map((row) => ({
      shard: row.shard,
      token: Number(row.token),
    }));
    for (const lease of leases) this.leases.set(lease.shard, lease);
    listener.acquired(
      leases,
      new Set(answer.rows.filter((row) => !row.clean).map((row) => row.shard)),
    );
  }

  async #release(shards: readonly number[]): Promise<void> {
    const { pool, process_id, listener } = this.#options;
    await listener.releasing(shards);
    await pool.query({
      text: /* sql */ `update shards set owner = null, lease_until = '-infinity' where shard = any($1::smallint[]) and owner = $2`,
      values: [shards, process_id],
    });
    for (const shard of shards) this.leases.delete(shard);
    listener.lost(shards);
  }

  /** A fifth of the lease is left as margin for a slow clock and an attempt just begun. */
  #usableUntil(asked_ms: number): number {
    return asked_ms + this.#options.lease_ms * 0.8;
  }
}

/**
 * Frees every lease: for the start of a process that has this database to itself. Leases it finds
 * belong to a process that was killed; they are free at once, and not clean.
 */
export async function freeLeftLeases(pool: pg.Pool): Promise<void> {
  await pool.query(/* sql */ `
    with gone as (delete from processes)
    update shards set lease_until = now() where lease_until > now()`);
}

function shuffled<T>(items: Iterable<T>): T[] {
  return [...items]
    .map((item) => ({ item, place: Math.random() }))
    .sort((a, b) => a.place - b.place)
    .map(({ item }) => item);
}
