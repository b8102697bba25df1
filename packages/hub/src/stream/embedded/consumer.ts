import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { backoff_ms, wait } from '../../base/index.ts';
import type { ConsumeOptions, StreamConsumer } from '../port.ts';
import { createCommitter } from './committer.ts';
import { createMembership } from './group.ts';
import { createHoldings } from './holdings.ts';
import { readLag } from './lag.ts';
import { createLatch } from './latch.ts';
import type { Listener, StreamEvent } from './listener.ts';
import { createReader } from './reader.ts';
import { type Topics, topicMatches } from './topics.ts';

const retry_base_ms = 100;
const retry_max_ms = 2000;
const stop_timeout_ms_default = 30_000;
const heartbeats_per_lease = 3;
/** Before others may think this member gone, by its own clock, it lets its partitions go. */
const fence_part_of_lease = 0.8;

export interface ConsumerParts {
  readonly pool: pg.Pool;
  readonly topics: Topics;
  readonly listener: Listener;
  readonly lease_ms: number;
}

export interface EmbeddedConsumer extends StreamConsumer {
  /** Ends everything at once without leaving the group, as a crash would. */
  kill(): Promise<void>;
}

/**
 * One member of a group. A loop keeps up the membership (heartbeats, topics, who holds what); the
 * reader fills the partitions it holds; each partition hands out its own batches.
 */
export function createConsumer(parts: ConsumerParts, options: ConsumeOptions): EmbeddedConsumer {
  const { pool, topics, listener, lease_ms } = parts;
  const { group } = options;
  const onFault = (fault: Error) => options.onFault(fault);
  const heartbeat_ms = lease_ms / heartbeats_per_lease;
  const fence_ms = lease_ms * fence_part_of_lease;
  const ending = new AbortController();
  const latch = createLatch();
  const joined = Promise.withResolvers<void>();
  const membership = createMembership(pool, { group, member: randomUUID(), lease_ms });
  const committer = createCommitter(membership, { onFault, lost: lookAgain });
  const reader = createReader(pool, { ...options, hears: () => listener.connected() });
  const holdings = createHoldings(
    { membership, topics, reader, committer, lookAgain, ending: ending.signal },
    options,
  );
  let matching: readonly number[] | null = null;
  let seen_version = -1;
  let failures = 0;
  let refresh_at_ms = 0;
  let stopping = false;
  let fence: NodeJS.Timeout | undefined;
  let unsubscribe = () => {};
  let running: Promise<void> | undefined;
  let stopped: Promise<void> | undefined;
  let turn: Promise<unknown> = Promise.resolve();

  /** The group's rows are compared anew, even if their version is the one already seen. */
  function lookAgain(): void {
    seen_version = -1;
    latch.open();
  }

  /** One step of membership after the other. */
  function exclusive(work: () => Promise<void>): Promise<void> {
    const mine = turn.then(work).catch((error: unknown) => {
      // It may have got half way: everything is looked at again.
      seen_version = -1;
      refresh_at_ms = 0;
      throw error;
    });
    turn = mine.catch(() => {});
    return mine;
  }

  async function step(): Promise<void> {
    if (!stopping && performance.now() >= refresh_at_ms) await lookForTopics();
    if (matching === null) return;
    const asked_at_ms = performance.now();
    const beat = await membership.heartbeat();
    if (beat.member) renewFence(asked_at_ms);
    else holdings.dropAll();
    if (stopping) return;
    if (beat.expired || !beat.member) await join(matching);
    if (beat.version !== seen_version || !beat.member) await reconcile();
  }

  async function lookForTopics(): Promise<void> {
    // Set first: a topic announced while the list is on its way asks for another look.
    refresh_at_ms = performance.now() + options.refresh_interval_ms;
    const all = await topics.list();
    const found = all.filter(({ name }) => topicMatches(options.topics, name)).map(({ id }) => id);
    if (matching?.join() !== found.join()) await join(found);
  }

  async function join(topic_ids: readonly number[]): Promise<void> {
    const asked_at_ms = performance.now();
    await membership.join(topic_ids);
    matching = topic_ids;
    seen_version = -1;
    renewFence(asked_at_ms);
  }

  /** Counted from before the request was sent: the lease began no earlier than that. */
  function renewFence(asked_at_ms: number): void {
    clearTimeout(fence);
    fence = setTimeout(
      () => {
        if (holdings.all().length === 0) return;
        const silence = `no heartbeat got through for ${Math.round(fence_ms)} ms`;
        onFault(new Error(`${silence}; letting the partitions of ${group} go`));
        holdings.dropAll();
      },
      Math.max(0, asked_at_ms + fence_ms - performance.now()),
    );
    fence.unref();
  }

  /** Brings what runs here in line with the group's rows. */
  async function reconcile(): Promise<void> {
    const { version, seats } = await membership.seats();
    // Set first: what is dropped meanwhile asks for another look.
    seen_version = version;
    const wanted = holdings.compare(seats);
    if (wanted.length > 0) holdings.add(await membership.claim(wanted));
  }

  async function run(): Promise<void> {
    while (!ending.signal.aborted) {
      try {
        await exclusive(step);
        failures = 0;
        joined.resolve();
      } catch (error) {
        const message = `keeping up the membership of ${group} failed; trying again`;
        onFault(new Error(message, { cause: error }));
        const longest_ms = Math.min(retry_max_ms, heartbeat_ms);
        await wait(backoff_ms(failures++, retry_base_ms, longest_ms), ending.signal);
        continue;
      }
      const refresh_in_ms = Math.max(1, refresh_at_ms - performance.now());
      await latch.pass(Math.min(heartbeat_ms, refresh_in_ms), ending.signal);
    }
  }

  function hear(event: StreamEvent): void {
    switch (event.kind) {
      case 'written':
        return reader.written(event.chunks);
      case 'appended':
        return reader.appended(event.partitions);
      case 'group':
        if (event.group === group) latch.open();
        return;
      case 'topics':
        refresh_at_ms = 0;
        return latch.open();
      case 'missed':
        reader.appended(null);
        return latch.open();
      default:
        return event satisfies never;
    }
  }

  /** Polite: the membership stays alive while running batches end, and positions are committed. */
  async function leave(timeout_ms: number): Promise<void> {
    stopping = true;
    const partitions = holdings.all();
    const waited = new AbortController();
    await Promise.race([holdings.stop(), wait(timeout_ms, waited.signal)]);
    waited.abort();
    await end();
    if (running === undefined) return;
    try {
      await committer.flush(partitions);
      await membership.leave();
    } catch (error) {
      onFault(new Error(`leaving ${group} failed; its lease has to run out`, { cause: error }));
    }
    committer.stop();
  }

  async function end(): Promise<void> {
    stopping = true;
    ending.abort();
    unsubscribe();
    void holdings.stop();
    await Promise.all([running, reader.stop()]);
    clearTimeout(fence);
    joined.resolve();
  }

  return {
    async start() {
      if (!running && !stopping) {
        unsubscribe = listener.subscribe(hear);
        reader.start();
        running = run();
      }
      await joined.promise;
    },
    stop: (timeout_ms = stop_timeout_ms_default) => (stopped ??= leave(timeout_ms)),
    kill() {
      committer.stop();
      return (stopped ??= end());
    },
    async refresh() {
      if (!running || stopping) return;
      refresh_at_ms = 0;
      await exclusive(step);
    },
    assignments: () =>
      holdings
        .all()
        .filter((one) => !one.signal.aborted)
        .map(({ topic, partition }) => ({ topic, partition })),
    lag: () => readLag(pool, holdings.all()),
    healthy: () => failures === 0 && reader.healthy() && listener.connected(),
  };
}
