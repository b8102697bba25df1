import type { buildConnector } from 'undici';
import { Pool } from 'undici';
import type { Clock } from '../../base/index.ts';
import type { DialReport } from './connector.ts';

/** Origins with an open pool; the least recently used idle one makes room for a new one. */
const POOLS_MAX = 1024;
/** A pool nobody used for this long is closed. */
const POOL_IDLE_MS = 30_000;
/** Connections to one origin: as many as attempts can be in flight in one process, so that none waits. */
const CONNECTIONS_PER_ORIGIN_MAX = 128;
/** Shorter than the keep-alive of common servers (5 s and more), so that it is us who close. */
const KEEP_ALIVE_MS = 4_000;
/** Upper limit for what a server's `Keep-Alive: timeout=` may ask for. */
const KEEP_ALIVE_HINT_MAX_MS = 60_000;
/** A busy connection is replaced after this time, so that the name is resolved and vetted again. */
const CONNECTION_AGE_MAX_MS = 300_000;
const ANSWER_HEADERS_BYTES_MAX = 16 * 1024;

export interface PoolLimits {
  readonly pools_max: number;
  readonly pool_idle_ms: number;
  readonly connections_per_origin_max: number;
}

/** The connections of one origin. */
export interface OriginPool {
  readonly pool: Pool;
  in_flight: number;
  used_at_ms: number;
  /** Set while undici hands a new connection to the request that waited for it. */
  fresh: DialReport | null;
  /** Once true it stays: kept connections may still lead there. */
  peer_is_private: boolean;
}

export interface OriginPools {
  /** The pool of an origin, made when needed, with `in_flight` raised by one. */
  acquire(origin: string): OriginPool;
  release(entry: OriginPool): void;
  stats(): { readonly pools: number; readonly in_flight: number };
  close(): Promise<void>;
}

/** Pools by origin in order of their last use. */
export function createOriginPools(
  clock: Clock,
  connectorFor: (onConnected: (report: DialReport) => void) => buildConnector.connector,
  limits: Partial<PoolLimits> = {},
): OriginPools {
  const pools_max = limits.pools_max ?? POOLS_MAX;
  const pool_idle_ms = limits.pool_idle_ms ?? POOL_IDLE_MS;
  const connections = limits.connections_per_origin_max ?? CONNECTIONS_PER_ORIGIN_MAX;
  const entries = new Map<string, OriginPool>();
  const closing = new Set<Promise<void>>();
  let sweeper: NodeJS.Timeout | null = null;

  function create(origin: string): OriginPool {
    const entry: OriginPool = {
      pool: new Pool(origin, {
        connections,
        connect: connectorFor((report) => {
          entry.fresh = report;
          entry.peer_is_private ||= report.peer_is_private;
        }),
        pipelining: 1,
        allowH2: false,
        keepAliveTimeout: KEEP_ALIVE_MS,
        keepAliveMaxTimeout: KEEP_ALIVE_HINT_MAX_MS,
        clientTtl: CONNECTION_AGE_MAX_MS,
        maxHeaderSize: ANSWER_HEADERS_BYTES_MAX,
        // The exchange has one timer for everything.
        headersTimeout: 0,
        bodyTimeout: 0,
      }),
      in_flight: 0,
      used_at_ms: 0,
      fresh: null,
      peer_is_private: false,
    };
    return entry;
  }

  function drop(origin: string, entry: OriginPool): void {
    entries.delete(origin);
    // Nothing is in flight, or it may finish: destroy ends idle sockets at once, close waits.
    const ended = (entry.in_flight === 0 ? entry.pool.destroy() : entry.pool.close()).catch(
      () => {}, // already closed
    );
    closing.add(ended);
    void ended.finally(() => closing.delete(ended));
  }

  function makeRoom(): void {
    if (entries.size < pools_max) return;
    for (const [origin, entry] of entries) {
      if (entry.in_flight === 0) return drop(origin, entry);
    }
    for (const [origin, entry] of entries) return drop(origin, entry);
  }

  function sweep(): void {
    const now_ms = clock.monotonic_ms();
    for (const [origin, entry] of entries) {
      if (now_ms - entry.used_at_ms < pool_idle_ms) break; // the rest was used later
      if (entry.in_flight === 0) drop(origin, entry);
    }
    if (entries.size === 0 && sweeper !== null) {
      clearInterval(sweeper);
      sweeper = null;
    }
  }

  return {
    acquire(origin) {
      let entry = entries.get(origin);
      if (entry === undefined) {
        makeRoom();
        entry = create(origin);
        sweeper ??= setInterval(sweep, pool_idle_ms / 2).unref();
      } else {
        entries.delete(origin); // set again below: a Map keeps the order of insertion
      }
      entries.set(origin, entry);
      entry.in_flight += 1;
      entry.used_at_ms = clock.monotonic_ms();
      return entry;
    },
    release(entry) {
      entry.in_flight -= 1;
    },
    stats() {
      let in_flight = 0;
      for (const entry of entries.values()) in_flight += entry.in_flight;
      return { pools: entries.size, in_flight };
    },
    async close() {
      for (const [origin, entry] of entries) drop(origin, entry);
      if (sweeper !== null) clearInterval(sweeper);
      sweeper = null;
      await Promise.all(closing);
    },
  };
}
