import pg from 'pg';
import { backoff_ms, wait } from '../../base/index.ts';
import type { AppendedChunk } from './batch.ts';

const channel = 'hub_stream';
const retry_base_ms = 50;
const retry_max_ms = 2000;
/** A connection that is cut without a word is noticed by this question. */
const check_interval_ms = 30_000;
const connect_timeout_ms = 5000;

/**
 * Something happened on the stream. `appended` by another process lists `${topic_id}/${partition}`, or
 * null for "any"; `written` by this process brings the chunks. `missed` = notifications may have been lost.
 */
export type StreamEvent =
  | { readonly kind: 'written'; readonly chunks: readonly AppendedChunk[] }
  | { readonly kind: 'appended'; readonly partitions: readonly string[] | null }
  | { readonly kind: 'group'; readonly group: string }
  | { readonly kind: 'topics' }
  | { readonly kind: 'missed' };

export interface Listener {
  subscribe(handle: (event: StreamEvent) => void): () => void;
  /** To subscribers in this process. */
  emit(event: StreamEvent): void;
  connected(): boolean;
  close(): Promise<void>;
}

/**
 * Hears of appends, topics and group changes of other processes, as hints: readers poll as well.
 * Connects when the first subscriber comes; a lost connection is rebuilt for ever.
 */
export function createListener(
  config: pg.ClientConfig,
  options: { sender: string; onFault: (fault: Error) => void },
): Listener {
  const subscribers = new Set<(event: StreamEvent) => void>();
  const closing = new AbortController();
  let running: Promise<void> | undefined;
  let connected = false;
  let failures = 0;

  function emit(event: StreamEvent): void {
    for (const handle of subscribers) handle(event);
  }

  /** Resolves when the stream closes; rejects when the connection is lost. */
  async function listenOnce(): Promise<void> {
    const client = new pg.Client({
      connectionTimeoutMillis: connect_timeout_ms,
      keepAlive: true,
      ...config,
      application_name: 'hub-stream-listen',
    });
    const over = new AbortController();
    const ended = new Promise<void>((resolve, reject) => {
      client.on('error', reject);
      client.on('end', () => reject(new Error('the connection that listens was closed')));
      closing.signal.addEventListener('abort', () => resolve(), {
        once: true,
        signal: over.signal,
      });
    });
    ended.catch(() => {}).finally(() => over.abort());
    client.on('notification', (message) => {
      const event = parseEvent(message.payload ?? '', options.sender);
      if (event) emit(event);
    });
    try {
      await Promise.race([listen(client, over.signal), ended]);
    } finally {
      connected = false;
      over.abort();
      client.end().catch(() => {});
    }
  }

  async function listen(client: pg.Client, over: AbortSignal): Promise<void> {
    await client.connect();
    await client.query(`listen ${channel}`);
    connected = true;
    failures = 0;
    emit({ kind: 'missed' });
    while (!over.aborted) {
      await wait(check_interval_ms, over);
      if (!over.aborted)
        await client.query({
          text: 'select 1',
          query_timeout: connect_timeout_ms,
        } as pg.QueryConfig);
    }
  }

  async function run(): Promise<void> {
    while (!closing.signal.aborted) {
      try {
        await listenOnce();
      } catch (error) {
        options.onFault(
          new Error('listening to the stream failed; trying again', { cause: error }),
        );
        await wait(backoff_ms(failures++, retry_base_ms, retry_max_ms), closing.signal);
      }
    }
  }

  return {
    subscribe(handle) {
      subscribers.add(handle);
      running ??= run();
      return () => void subscribers.delete(handle);
    },
    emit,
    connected: () => connected,
    async close() {
      closing.abort();
      await running;
    },
  };
}

/** Null for what this process has said itself: it knew before. */
function parseEvent(payload: string, own_sender: string): StreamEvent | null {
  const [kind, first = '', ...rest] = payload.split(' ');
  if (kind === 'log') {
    if (first === own_sender) return null;
    return { kind: 'appended', partitions: rest[0] === '*' ? null : rest };
  }
  if (kind === 'group') return { kind: 'group', group: payload.slice('group '.length) };
  if (kind === 'topics') return { kind: 'topics' };
  return { kind: 'missed' };
}
