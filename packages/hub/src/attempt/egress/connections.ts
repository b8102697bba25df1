import { Client } from 'undici';
import type { Clock } from '../../base/index.ts';
import type { ConnectorParts, DialReport } from './connector.ts';
import { createConnector } from './connector.ts';

/** Origins with open connections; the least recently used idle one makes room for a new one. */
const ORIGINS_MAX = 1024;
/** Connections to one origin: as many as attempts can be in flight in one process, so that none waits. */
const CONNECTIONS_PER_ORIGIN_MAX = 128;
/** A connection nobody used for this long is forgotten, its origin with the last one. */
const FORGET_AFTER_MS = 30_000;
/** Shorter than the keep-alive of common servers (5 s and more), so that it is us who close. */
const KEEP_ALIVE_MS = 4_000;
/** Upper limit for what a server's `Keep-Alive: timeout=` may ask for. */
const KEEP_ALIVE_HINT_MAX_MS = 60_000;
/**
 * A connection idle for longer waits one turn of the event loop before it is used, so that a close the
 * receiver sent in the meantime is seen first. Below, a lane would pay for it with half its speed.
 */
const LOOK_BEFORE_USE_AFTER_MS = 0.5;
/** A busy connection is replaced after this time, so that the name is resolved and vetted again. */
const CONNECTION_AGE_MAX_MS = 300_000;
const ANSWER_HEADERS_BYTES_MAX = 16 * 1024;

export interface ConnectionLimits {
  readonly origins_max: number;
  readonly connections_per_origin_max: number;
  readonly forget_after_ms: number;
  readonly connection_age_max_ms: number;
}

/** One connection, used by one exchange at a time. undici reconnects it when it was closed while idle. */
export interface Connection {
  readonly client: Client;
  /** Set by a new connection, taken by the request it was made for. */
  fresh: DialReport | null;
  peer_is_private: boolean;
}

/** Someone who wants a connection; `use` may be called at once or later, but only once, and must lead to `giveBack`. */
export interface Taker {
  use(connection: Connection): void;
}

export interface Connections {
  /** Gives `taker` a connection to this origin as soon as one may be used. */
  take(origin: string, taker: Taker): void;
  /** Forgets a taker that still waits. Others may get their connection all the same. */
  leave(origin: string, taker: Taker): void;
  /** @param isReusable the exchange ended in an orderly way; otherwise the connection is destroyed */
  giveBack(origin: string, connection: Connection, isReusable: boolean): void;
  stats(): { readonly origins: number; readonly in_flight: number; readonly idle: number };
  /** Closes what is idle, waits for what is in use. */
  close(): Promise<void>;
}

interface Kept extends Connection {
  readonly cancel: AbortController;
  connected_at_ms: number;
  used_at_ms: number;
}

interface Origin {
  /** Idle connections; the most recently used is last and is used next, so that the rest can age. */
  readonly idle: Kept[];
  in_flight: number;
  readonly waiting: Taker[];
}

/**
 * Connections by origin, in order of their last use. undici's own `Pool` is not used: it looks
 * through all its clients for each request (with 128 of them a fifth of the CPU time of an
 * exchange), and opens a second connection for a lane that sends one request after the other.
 */
export function createConnections(
  clock: Clock,
  parts: ConnectorParts,
  limits: Partial<ConnectionLimits> = {},
): Connections {
  const origins_max = limits.origins_max ?? ORIGINS_MAX;
  const per_origin_max = limits.connections_per_origin_max ?? CONNECTIONS_PER_ORIGIN_MAX;
  const forget_after_ms = limits.forget_after_ms ?? FORGET_AFTER_MS;
  const age_max_ms = limits.connection_age_max_ms ?? CONNECTION_AGE_MAX_MS;
  const origins = new Map<string, Origin>();
  let sweeper: NodeJS.Timeout | null = null;
  let onDrained: (() => void) | null = null;

  function open(origin: string): Kept {
    const cancel = new AbortController();
    const connect = createConnector(parts, cancel.signal, (report) => {
      kept.fresh = report;
      kept.peer_is_private = report.peer_is_private;
      kept.connected_at_ms = clock.monotonic_ms();
    });
    const client = new Client(origin, {
      connect,
      pipelining: 1,
      allowH2: false,
      keepAliveTimeout: KEEP_ALIVE_MS,
      keepAliveMaxTimeout: KEEP_ALIVE_HINT_MAX_MS,
      maxHeaderSize: ANSWER_HEADERS_BYTES_MAX,
      // The exchange has one timer for everything.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    const now_ms = clock.monotonic_ms();
    const kept: Kept = {
      client,
      cancel,
      fresh: null,
      peer_is_private: false,
      connected_at_ms: now_ms,
      used_at_ms: now_ms,
    };
    return kept;
  }

  function destroy(connection: Kept): void {
    connection.cancel.abort();
    connection.client.destroy().catch(() => {}); // destroyed already
  }

  /** The entry of an origin, made the most recently used one. */
  function touch(origin: string): Origin {
    let entry = origins.get(origin);
    if (entry === undefined) {
      if (origins.size >= origins_max) forgetOldestIdle();
      entry = { idle: [], in_flight: 0, waiting: [] };
      sweeper ??= setInterval(sweep, forget_after_ms / 2).unref();
    } else {
      origins.delete(origin); // set again below: a Map keeps the order of insertion
    }
    origins.set(origin, entry);
    return entry;
  }

  /** Origins in use stay even beyond the limit: there are no more of them than exchanges. */
  function forgetOldestIdle(): void {
    for (const [origin, entry] of origins) {
      if (entry.in_flight > 0) continue;
      forget(origin, entry);
      return;
    }
  }

  function forget(origin: string, entry: Origin): void {
    origins.delete(origin);
    for (const connection of entry.idle.splice(0)) destroy(connection);
  }

  function sweep(): void {
    const limit_ms = clock.monotonic_ms() - forget_after_ms;
    for (const [origin, entry] of origins) {
      const fresh = entry.idle.findIndex((connection) => connection.used_at_ms > limit_ms);
      const stale = entry.idle.splice(0, fresh === -1 ? entry.idle.length : fresh);
      for (const connection of stale) destroy(connection);
      if (entry.idle.length + entry.in_flight === 0) origins.delete(origin);
    }
    if (origins.size === 0) stopSweeping();
  }

  function stopSweeping(): void {
    if (sweeper !== null) clearInterval(sweeper);
    sweeper = null;
  }

  function isDrained(): boolean {
    for (const entry of origins.values()) if (entry.in_flight > 0) return false;
    return true;
  }

  return {
    take(origin, taker) {
      const entry = touch(origin);
      if (entry.in_flight >= per_origin_max) {
        entry.waiting.push(taker);
        return;
      }
      entry.in_flight += 1;
      const kept = entry.idle.pop();
      if (kept === undefined) return taker.use(open(origin));
      const idle_ms = clock.monotonic_ms() - kept.used_at_ms;
      if (idle_ms < LOOK_BEFORE_USE_AFTER_MS) taker.use(kept);
      else setImmediate(() => taker.use(kept));
    },

    leave(origin, taker) {
      const waiting = origins.get(origin)?.waiting ?? [];
      const index = waiting.indexOf(taker);
      if (index !== -1) waiting.splice(index, 1);
    },

    giveBack(origin, connection, isReusable) {
      const kept = connection as Kept;
      const entry = origins.get(origin);
      if (entry === undefined) return destroy(kept); // cannot be: an origin in use is never forgotten
      kept.used_at_ms = clock.monotonic_ms();
      const isYoung = kept.used_at_ms - kept.connected_at_ms < age_max_ms;
      const isKept = isReusable && isYoung && onDrained === null;
      if (!isKept) destroy(kept);
      const next = entry.waiting.shift();
      if (next !== undefined) return next.use(isKept ? kept : open(origin));
      entry.in_flight -= 1;
      if (isKept) entry.idle.push(kept);
      if (onDrained !== null && isDrained()) onDrained();
    },

    stats() {
      const entries = [...origins.values()];
      return {
        origins: entries.length,
        in_flight: entries.reduce((sum, entry) => sum + entry.in_flight, 0),
        idle: entries.reduce((sum, entry) => sum + entry.idle.length, 0),
      };
    },

    async close() {
      stopSweeping();
      const drained = new Promise<void>((resolve) => {
        onDrained = resolve;
      });
      for (const [origin, entry] of origins) if (entry.in_flight === 0) forget(origin, entry);
      if (!isDrained()) await drained;
      for (const [origin, entry] of origins) forget(origin, entry);
    },
  };
}
