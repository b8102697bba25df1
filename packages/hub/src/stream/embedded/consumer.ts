import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { backoff_ms, wait } from '../../base/index.ts';
import type { ConsumeOptions, StreamConsumer, TopicPartition } from '../port.ts';
import { integers } from './batch.ts';
import { createCommitter } from './committer.ts';
import { type Claimed, createMembership, type Owned, type SeatRow } from './group.ts';
import { createLatch } from './latch.ts';
import type { Listener, StreamEvent } from './listener.ts';
import { type AssignedPartition, createPartition } from './partition.ts';
import { createReader, keyOf } from './reader.ts';
import type { Topics } from './topics.ts';

const retry_base_ms = 100;
const retry_max_ms = 2000;
const stop_timeout_ms_default = 30_000;
/** A partition that is taken away waits this long for its running batch; after that it is let go anyhow. */
const revoke_wait_ms = 30_000;

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

export function createConsumer(parts: ConsumerParts, options: ConsumeOptions): EmbeddedConsumer {
  const { pool, topics, listener, lease_ms } = parts;
  const { group } = options;
  const onFault = (fault: Error) => options.onFault(fault);
  const heartbeat_ms = lease_ms / 3;
  /** Before others may think this member gone, by its own clock, it stops handing out batches. */
  const fence_ms = lease_ms * 0.8;
  const membership = createMembership(pool, { group, member: randomUUID(), lease_ms });
  const owned = new Map<string, AssignedPartition>();
  /** Let go, but their last batch is still running. */
  const draining = new Set<string>();
  const latch = createLatch();
  const ending = new AbortController();
  let matching: readonly number[] | null = null;
  let seen_version = -1;
  let failures = 0;
  let refresh_at_ms = 0;
  let refresh_due = true;
  let fence: NodeJS.Timeout | undefined;
  let unsubscribe = () => {};
  let running: Promise<void> | undefined;
  let stopped: Promise<void> | undefined;
  let stopping = false;
  let turn: Promise<unknown> = Promise.resolve();
  const joined = Promise.withResolvers<void>();

  const committer = createCommitter(membership, {
    onFault,
    lost: lookAgain,
  });
  const reader = createReader(pool, { ...options, hears: () => listener.connected() });

  /** One step of membership after the other. */
  function exclusive<T>(work: () => Promise<T>): Promise<T> {
    const mine = turn.then(work);
    turn = mine.catch(() => {});
    return mine;
  }

  async function step(): Promise<void> {
    if (stopping && matching === null) return;
    if (!stopping && (refresh_due || performance.now() >= refresh_at_ms)) await lookForTopics();
    const asked_at_ms = performance.now();
    const beat = await membership.heartbeat();
    if (!beat.member) {
      for (const partition of owned.values()) void drop(partition);
      if (stopping) return;
      await join();
      return reconcile();
    }
    renewFence(asked_at_ms);
    if (beat.expired && !stopping) await join();
    if (beat.expired || beat.version !== seen_version) await reconcile();
  }

  async function lookForTopics(): Promise<void> {
    const all = await topics.list();
    const found = all
      .filter((topic) => matches(options.topics, topic.name))
      .map((topic) => topic.id);
    refresh_due = false;
    refresh_at_ms = performance.now() + options.refresh_interval_ms;
    if (matching !== null && matching.join() === found.join()) return;
    matching = found;
    await join();
  }

  async function join(): Promise<void> {
    const asked_at_ms = performance.now();
    await membership.join(matching ?? []);
    renewFence(asked_at_ms);
    seen_version = -1;
  }

  function renewFence(asked_at_ms: number): void {
    clearTimeout(fence);
    const left_ms = Math.max(0, asked_at_ms + fence_ms - performance.now());
    fence = setTimeout(() => {
      if (owned.size === 0) return;
      onFault(
        new Error(
          `no heartbeat for ${Math.round(fence_ms)} ms; letting the partitions of ${group} go`,
        ),
      );
      for (const partition of owned.values()) void drop(partition);
    }, left_ms);
    fence.unref();
  }

  /** Brings what runs here in line with the group's rows. */
  async function reconcile(): Promise<void> {
    if (stopping) return;
    const { version, seats } = await membership.seats();
    const mine = new Map(seats.map((seat) => [keyOf(seat), seat]));
    for (const [key, partition] of owned) {
      const seat = mine.get(key);
      if (!holds(seat, partition)) void drop(partition);
      else if (seat?.target !== membership.id && !partition.signal.aborted)
        void giveBack(partition);
    }
    const wanted = seats.filter(
      (seat) =>
        seat.target === membership.id &&
        (seat.owner === null || seat.owner === membership.id) &&
        !owned.has(keyOf(seat)) &&
        !draining.has(keyOf(seat)),
    );
    if (wanted.length > 0) assigned(await membership.claim(wanted));
    seen_version = version;
  }

  function holds(seat: SeatRow | undefined, partition: AssignedPartition): boolean {
    return seat?.owner === membership.id && seat.generation === partition.generation;
  }

  function assigned(claims: readonly Claimed[]): void {
    const fresh = new Map<AssignedPartition, number | null>();
    for (const claim of claims) {
      const topic = topics.byId(claim.topic_id)?.name;
      if (topic === undefined) continue;
      const partition = createPartition({ ...claim, topic }, options, {
        buffered: (bytes) => reader.buffered(bytes),
        hungry: (one) => reader.hungry(one),
        moved: (one) => committer.moved(one),
      });
      owned.set(keyOf(claim), partition);
      reader.add(partition);
      fresh.set(partition, claim.next_offset);
    }
    void begin(fresh);
  }

  /** Asks the caller for its positions until it has them, then lets the partitions run. */
  async function begin(fresh: ReadonlyMap<AssignedPartition, number | null>): Promise<void> {
    for (let tries = 0; ; tries++) {
      const live = [...fresh.keys()].filter((partition) => !partition.signal.aborted);
      if (live.length === 0) return;
      try {
        const places = live.map(({ topic, partition }) => ({ topic, partition }));
        const known = await options.loadPositions(places);
        for (const partition of live) {
          const own = known.get(`${partition.topic}/${partition.partition}`);
          partition.begin(own ?? fresh.get(partition) ?? 0);
        }
        return;
      } catch (error) {
        onFault(new Error('loading positions failed; trying again', { cause: error }));
        await wait(backoff_ms(tries, retry_base_ms, retry_max_ms), ending.signal);
      }
    }
  }

  /** Others own it, or may: nothing is committed any more. Not claimed again before its batch has ended. */
  async function drop(partition: AssignedPartition): Promise<void> {
    forget(partition);
    draining.add(keyOf(partition));
    await partition.stop();
    draining.delete(keyOf(partition));
    lookAgain();
  }

  /** The group's rows are compared anew, even if their version is the one already seen. */
  function lookAgain(): void {
    seen_version = -1;
    latch.open();
  }

  function forget(partition: AssignedPartition): void {
    reader.remove(partition);
    if (owned.get(keyOf(partition)) === partition) owned.delete(keyOf(partition));
  }

  /** Ends the running batch, commits and makes room for the partition's next owner. */
  async function giveBack(partition: AssignedPartition): Promise<void> {
    const ended = new AbortController();
    await Promise.race([partition.stop(), wait(revoke_wait_ms, ended.signal)]);
    ended.abort();
    for (
      let tries = 0;
      owned.get(keyOf(partition)) === partition && !ending.signal.aborted;
      tries++
    ) {
      try {
        await committer.flush([partition]);
        await membership.release([partition]);
        break;
      } catch (error) {
        onFault(new Error('giving a partition back failed; trying again', { cause: error }));
        await wait(backoff_ms(tries, retry_base_ms, retry_max_ms), ending.signal);
      }
    }
    await drop(partition);
  }

  async function run(): Promise<void> {
    while (!ending.signal.aborted) {
      let pause_ms = heartbeat_ms;
      try {
        await exclusive(step);
        failures = 0;
        if (matching !== null) joined.resolve();
      } catch (error) {
        onFault(
          new Error(`keeping up the membership of ${group} failed; trying again`, { cause: error }),
        );
        pause_ms = backoff_ms(failures++, retry_base_ms, Math.min(retry_max_ms, heartbeat_ms));
        await wait(pause_ms, ending.signal);
        continue;
      }
      await latch.pass(
        Math.min(pause_ms, Math.max(1, refresh_at_ms - performance.now())),
        ending.signal,
      );
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
        refresh_due = true;
        return latch.open();
      case 'missed':
        reader.appended(null);
        return latch.open();
      default:
        return event satisfies never;
    }
  }

  async function end(leave: boolean, timeout_ms: number): Promise<void> {
    stopping = true;
    const partitions = [...owned.values()];
    const batches = Promise.all(partitions.map((partition) => partition.stop()));
    if (leave) {
      // The membership stays alive while running batches end.
      const ended = new AbortController();
      await Promise.race([batches, wait(timeout_ms, ended.signal)]);
      ended.abort();
    } else committer.stop();
    ending.abort();
    clearTimeout(fence);
    unsubscribe();
    await Promise.all([running, reader.stop()]);
    if (leave && running) await sayGoodbye(partitions);
    committer.stop();
    owned.clear();
    joined.resolve();
  }

  async function sayGoodbye(partitions: readonly AssignedPartition[]): Promise<void> {
    try {
      await committer.flush(partitions);
      await membership.leave();
    } catch (error) {
      onFault(new Error(`leaving ${group} failed; its lease has to run out`, { cause: error }));
    }
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
    stop: (timeout_ms = stop_timeout_ms_default) => (stopped ??= end(true, timeout_ms)),
    kill: () => (stopped ??= end(false, 0)),
    async refresh() {
      if (!running || stopping) return;
      refresh_due = true;
      await exclusive(step);
    },
    assignments: () => [...owned.values()].filter((one) => !one.signal.aborted).map(placeOf),
    async lag() {
      const held = [...owned.values()].filter((one) => one.position() !== null);
      const bounds = await readBounds(pool, held);
      return held.flatMap((one) => {
        const found = bounds.get(keyOf(one));
        if (!found) return [];
        const position = Math.max(one.position() ?? 0, found.first_offset);
        return [{ ...placeOf(one), position, lag: Math.max(0, found.end_offset - position) }];
      });
    },
    healthy: () => failures === 0 && reader.healthy() && listener.connected(),
  };
}

function placeOf({ topic, partition }: AssignedPartition): TopicPartition {
  return { topic, partition };
}

/** The whole name has to match, whatever anchors and flags the pattern has. */
function matches(pattern: RegExp, name: string): boolean {
  return new RegExp(`^(?:${pattern.source})$`, pattern.flags.replace(/[gy]/g, '')).test(name);
}

interface Bounds {
  first_offset: number;
  end_offset: number;
}

async function readBounds(
  pool: pg.Pool,
  places: readonly Owned[],
): Promise<ReadonlyMap<string, Bounds>> {
  if (places.length === 0) return new Map();
  const found = await pool.query<Owned & Bounds>(
    /* sql */ `select topic_id, partition, first_offset, end_offset from stream_bounds($1, $2)`,
    [
      integers(places.map((place) => place.topic_id)),
      integers(places.map((place) => place.partition)),
    ],
  );
  return new Map(found.rows.map((row) => [keyOf(row), row]));
}
