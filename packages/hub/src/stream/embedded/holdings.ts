import { backoff_ms, wait } from '../../base/index.ts';
import type { ConsumeOptions } from '../port.ts';
import type { Committer } from './committer.ts';
import type { Claimed, Membership, SeatRow } from './group.ts';
import { type AssignedPartition, createPartition } from './partition.ts';
import { keyOf, type Reader } from './reader.ts';
import type { Topics } from './topics.ts';

const retry_base_ms = 100;
const retry_max_ms = 2000;
/** A partition that is taken away waits this long for its running batch; after that it is let go anyhow. */
const revoke_wait_ms = 30_000;

/** The partitions that this member holds, and those it has let go whose last batch still runs. */
export interface Holdings {
  all(): readonly AssignedPartition[];
  /** Starts what has just been claimed. */
  add(claims: readonly Claimed[]): void;
  /** Lets go at once: others own it, or may. What was handled is committed if nobody does. */
  drop(partition: AssignedPartition): void;
  dropAll(): void;
  /** Drops what the group's rows do not grant, gives back what others should have; returns what is to be claimed. */
  compare(seats: readonly SeatRow[]): readonly SeatRow[];
  /** Aborts every signal; nothing is added any more. Resolves when all batches have ended. */
  stop(): Promise<void>;
}

export function createHoldings(
  parts: {
    readonly membership: Membership;
    readonly topics: Topics;
    readonly reader: Reader;
    readonly committer: Committer;
    /** Called when the group's rows have to be compared again. */
    readonly lookAgain: () => void;
    readonly ending: AbortSignal;
  },
  options: ConsumeOptions,
): Holdings {
  const { membership, topics, reader, committer, lookAgain, ending } = parts;
  const owned = new Map<string, AssignedPartition>();
  const draining = new Map<string, Promise<void>>();
  let stopping = false;

  function add(claims: readonly Claimed[]): void {
    // Claimed while stopping: leaving the group frees it again.
    if (stopping) return;
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
        options.onFault(new Error('loading positions failed; trying again', { cause: error }));
        await wait(backoff_ms(tries, retry_base_ms, retry_max_ms), ending);
      }
    }
  }

  function drop(partition: AssignedPartition): void {
    const key = keyOf(partition);
    reader.remove(partition);
    if (owned.get(key) === partition) owned.delete(key);
    const ended = partition
      .stop()
      .then(() => committer.flush([partition]))
      .then(() => {
        if (draining.get(key) === ended) draining.delete(key);
        lookAgain();
      });
    draining.set(key, ended);
  }

  /** Ends the running batch, commits and makes room for the partition's next owner. */
  async function giveBack(partition: AssignedPartition): Promise<void> {
    const holds = () => owned.get(keyOf(partition)) === partition && !ending.aborted;
    const ended = new AbortController();
    await Promise.race([partition.stop(), wait(revoke_wait_ms, ended.signal)]);
    ended.abort();
    for (let tries = 0; holds(); tries++) {
      try {
        await committer.flush([partition]);
        await membership.release([partition]);
        break;
      } catch (error) {
        const message = 'giving a partition back failed; trying again';
        options.onFault(new Error(message, { cause: error }));
        await wait(backoff_ms(tries, retry_base_ms, retry_max_ms), ending);
      }
    }
    if (holds()) drop(partition);
  }

  return {
    all: () => [...owned.values()],
    add,
    drop,
    dropAll() {
      for (const partition of owned.values()) drop(partition);
    },
    compare(seats) {
      const granted = new Map(seats.map((seat) => [keyOf(seat), seat]));
      for (const [key, partition] of owned) {
        const seat = granted.get(key);
        const own = seat?.owner === membership.id && seat.generation === partition.generation;
        if (!own) drop(partition);
        else if (seat.target !== membership.id && !partition.signal.aborted)
          void giveBack(partition);
      }
      const free = ({ owner }: SeatRow) => owner === null || owner === membership.id;
      return seats.filter(
        (seat) =>
          seat.target === membership.id &&
          free(seat) &&
          !owned.has(keyOf(seat)) &&
          !draining.has(keyOf(seat)),
      );
    },
    async stop() {
      stopping = true;
      const partitions = [...owned.values()].map((partition) => partition.stop());
      await Promise.all([...partitions, ...draining.values()]);
    },
  };
}
