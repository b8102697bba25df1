import pg from 'pg';
import { type StoreLog, silentLog } from './log.ts';
import { typeParsers } from './types.ts';

const connections_max_default = 10;
const connect_timeout_ms = 10_000;
const statement_timeout_ms_default = 30_000;
const idle_in_transaction_ms_default = 60_000;
const answer_margin_ms = 5_000;

export interface PoolOptions {
  /** Shown in pg_stat_activity. */
  application_name: string;
  /** Connections at most. Default 10. */
  max?: number;
  /** A statement is cancelled after this many milliseconds; 0 = never. Default 30 000. */
  statement_timeout_ms?: number;
  /** An idle open transaction is ended after this many milliseconds; 0 = never. Default 60 000. */
  idle_in_transaction_ms?: number;
  /**
   * For connections that run few, prepared statements: the first five custom plans, made while
   * tables are small, chose hash joins over whole tables (3.5 ms, not 0.7).
   */
  force_generic_plan?: boolean;
  log?: StoreLog;
}

/**
 * One plan per statement, and one that cannot go wrong later: a partition that is empty when the plan
 * is made (next week's) would be read from end to end once it fills, until it is analyzed. A cache of
 * look-ups that never repeat only costs, and compiling costs more than our short statements.
 */
const hotPlans = [
  '-c plan_cache_mode=force_generic_plan',
  '-c enable_seqscan=off',
  '-c enable_memoize=off',
  '-c jit=off',
];

/**
 * A pool whose lost connections never end the process: a connection that dies while idle is
 * replaced, one that dies in use fails its query. `bigint` columns are numbers.
 */
export function openPool(config: pg.PoolConfig, options: PoolOptions): pg.Pool {
  const log = options.log ?? silentLog;
  const statement_timeout_ms = options.statement_timeout_ms ?? statement_timeout_ms_default;
  const pool = new pg.Pool({
    connectionTimeoutMillis: connect_timeout_ms,
    keepAlive: true,
    // A server that has gone without a word cancels nothing: the client gives up by itself, and the pool
    // replaces the connection.
    ...(statement_timeout_ms > 0 && { query_timeout: statement_timeout_ms + answer_margin_ms }),
    ...config,
    application_name: options.application_name,
    max: options.max ?? config.max ?? connections_max_default,
    statement_timeout: statement_timeout_ms,
    idle_in_transaction_session_timeout:
      options.idle_in_transaction_ms ?? idle_in_transaction_ms_default,
    types: typeParsers,
    ...(options.force_generic_plan
      ? {
          options: [config.options, ...hotPlans].filter(Boolean).join(' '),
        }
      : {}),
  });
  pool.on('error', (error) => {
    // The pool hangs the whole client on the error; it does not belong in a log.
    delete (error as { client?: unknown }).client;
    log.warn({ err: error, pool: options.application_name }, 'database connection lost');
  });
  // A client in use has no listener of the pool; without one its 'error' event would end the process.
  // Whoever runs a query on it gets the error from that query.
  pool.on('connect', (client) => client.on('error', () => {}));
  return pool;
}

/**
 * Runs `work` in one transaction and commits; any error rolls back and is thrown on. The
 * connection is closed when even the rollback fails.
 */
export async function withTransaction<T>(
  pool: pg.Pool,
  work: (client: pg.PoolClient) => Promise<T>,
): Promise<T> {
  const client = await pool.connect();
  let broken: Error | undefined;
  try {
    await client.query('begin');
    const result = await work(client);
    await client.query('commit');
    return result;
  } catch (error) {
    await client.query('rollback').catch((cause: unknown) => {
      broken = cause instanceof Error ? cause : new Error('rollback failed', { cause });
    });
    throw error;
  } finally {
    client.release(broken);
  }
}
