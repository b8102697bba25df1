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
  /** Those of these shards that have attempts in flight. */
  busy(shards: readonly number[]): ReadonlySet<number>;
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
  /** Being handed back: still leased and renewed until what is in flight has ended. */
  readonly #leaving = new Set<number>();
  readonly #handingBack = new Set<Promise<void>>();
  #loop: Promise<void> | null = null;
  /** Monotonic milliseconds. */
  #usableUntil_ms = 0;

  constructor(options: ShardOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    this.#loop ??= this.#run();
  }

  /** Hands everything back and leaves; renews until then, so that nobody takes over what is still in flight. */
  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#loop;
    const handedBack = new AbortController();
    const renewing = this.#keepRenewing(handedBack.signal);
    this.#handBack([...this.leases.keys()].filter((shard) => !this.#leaving.has(shard)));
    await Promise.all(this.#handingBack);
    handedBack.abort();
    await renewing;
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

  async #keepRenewing(signal: AbortSignal): Promise<void> {
    const { lease_ms, onFault } = this.#options;
    while (!signal.aborted) {
      await this.#renew().catch(onFault);
      await wait(lease_ms / 3, signal);
    }
  }

  /** Prolongs exactly what is known to be held: a lease that was given, but whose news got lost, runs out. */
  async #renew(): Promise<void> {
    const { pool, process_id, role, lease_ms, clock, listener } = this.#options;
    const asked_ms = clock.monotonic_ms();
    const held = [...this.leases.values()];
    const answer = await pool.query<{ shard: number; token: string }>({
      name: 'renew-leases',
      text: /* sql */ `
        with heartbeat as (
          insert into processes (id, role, heartbeat_at) values ($1, $2, now())
          on conflict (id) do update set heartbeat_at = now())
        update shards s set lease_until = now() + make_interval(secs => $3::float8)
        from unnest($4::smallint[], $5::bigint[]) held(shard, token)
        where s.shard = held.shard and s.token = held.token and s.owner = $1
        returning s.shard, s.token`,
      values: [
        process_id,
        role,
        lease_ms / 1000,
        held.map((lease) => lease.shard),
        held.map((lease) => lease.token),
      ],
    });
    const kept = new Set(answer.rows.map((row) => `${row.shard}:${row.token}`));
    this.#lose(held.filter((lease) => !kept.has(`${lease.shard}:${lease.token}`)));
    this.#usableUntil_ms = this.#usableUntil(asked_ms);
    listener.renewed();
  }

  #lose(leases: readonly Lease[]): void {
    const gone = leases.filter((lease) => this.leases.get(lease.shard) === lease);
    for (const { shard } of gone) this.leases.delete(shard);
    if (gone.length > 0) this.#options.listener.lost(gone.map((lease) => lease.shard));
  }

  /** Moves towards the even share; true when nothing is left to move. */
  async #balance(): Promise<boolean> {
    const { pool, lease_ms } = this.#options;
    const answer = await pool.query<{ live: number }>({
      name: 'count-processes',
      text: `select count(*)::int as live from processes where role <> 'ingest' and heartbeat_at > now() - make_interval(secs => $1::float8)`,
      values: [lease_ms / 1000],
    });
    const live = Math.max(1, answer.rows[0]?.live ?? 1);
    const share = Math.ceil(shards_total / live);
    const staying = [...this.leases.keys()].filter((shard) => !this.#leaving.has(shard));
    // Which ones is left to chance, because neighbouring lanes tend to belong together.
    this.#handBack(shuffled(staying).slice(share));
    const missing = share - staying.length;
    if (missing > 0) await this.#acquire(missing);
    return this.leases.size >= Math.floor(shards_total / live);
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
    for (const { shard } of leases) {
      const older = this.leases.get(shard);
      if (older) this.#lose([older]);
    }
    for (const lease of leases) this.leases.set(lease.shard, lease);
    listener.acquired(
      leases,
      new Set(answer.rows.filter((row) => !row.clean).map((row) => row.shard)),
    );
  }

  /**
   * In the background: it waits for attempts in flight, and the other leases are to be renewed
   * meanwhile. A shard on which an attempt hangs does not hold up the others.
   */
  #handBack(shards: readonly number[]): void {
    const busy = this.#options.listener.busy(shards);
    this.#handBackTogether(shards.filter((shard) => !busy.has(shard)));
    for (const shard of busy) this.#handBackTogether([shard]);
  }

  #handBackTogether(shards: readonly number[]): void {
    if (shards.length === 0) return;
    for (const shard of shards) this.#leaving.add(shard);
    const leases = shards.map((shard) => this.leases.get(shard) as Lease);
    const done = this.#release(leases)
      .catch((error: unknown) =>
        // Not renewed any more, they run out and are taken over.
        this.#options.onFault(new Error('shards could not be handed back', { cause: error })),
      )
      .finally(() => {
        for (const shard of shards) this.#leaving.delete(shard);
        this.#lose(leases);
        this.#handingBack.delete(done);
      });
    this.#handingBack.add(done);
  }

  async #release(leases: readonly Lease[]): Promise<void> {
    const { pool, process_id, listener } = this.#options;
    await listener.releasing(leases.map((lease) => lease.shard));
    await pool.query({
      text: /* sql */ `
        update shards s set owner = null, lease_until = '-infinity'
        from unnest($1::smallint[], $2::bigint[]) held(shard, token)
        where s.shard = held.shard and s.token = held.token and s.owner = $3`,
      values: [leases.map((lease) => lease.shard), leases.map((lease) => lease.token), process_id],
    });
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
