/**
 * Commits positions to the group in the background: at most one request under way, the newest
 * offset of each partition, every `interval_ms` and whenever a flush is asked for. Nothing waits
 * for it but revocation and stop, because the caller keeps its own positions.
 *
 * Every commit carries the generation under which the partitions were owned; a fenced one is never
 * repeated under a newer generation.
 */
import { offsetCommitV8, offsetFetchV8 } from '@platformatic/kafka';
import { wait } from '../../base/index.ts';
import type { TopicPartition } from '../port.ts';
import type { Coordinator } from './coordinator.ts';
import { fault, kafkaErrorNames } from './errors.ts';
import { type Generation, isFenced } from './membership.ts';
import { partitionKey } from './partition-key.ts';

export interface CommitterOptions {
  readonly interval_ms: number;
  /** Null while this is no member, and during a join: a commit then could not be told from a stale one. */
  generation(): Generation | null;
  owns(key: string): boolean;
  onFenced(): void;
  onFault(fault: Error): void;
}

interface Pending extends TopicPartition {
  readonly offset: number;
}

const FLUSH_retry_ms = 50;
const RETRY_ms = 1_000;

export class Committer {
  readonly #coordinator: Coordinator;
  readonly #options: CommitterOptions;
  readonly #pending = new Map<string, Pending>();
  #running: Promise<boolean> | null = null;
  #timer: NodeJS.Timeout | undefined;
  #failed = false;
  #stopped = false;

  constructor(coordinator: Coordinator, options: CommitterOptions) {
    this.#coordinator = coordinator;
    this.#options = options;
  }

  note(source: TopicPartition, offset: number): void {
    this.#pending.set(partitionKey(source), { ...source, offset });
    this.#schedule();
  }

  #schedule(): void {
    if (this.#stopped) return;
    const delay_ms = this.#failed ? RETRY_ms : this.#options.interval_ms;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.#commitOnce();
    }, delay_ms);
  }

  /** Forgets partitions that somebody else owns by now. */
  forget(partitions: readonly TopicPartition[]): void {
    for (const one of partitions) this.#pending.delete(partitionKey(one));
  }

  /** Commits everything noted so far. Gives up in time: what is not committed is read again, which is harmless. */
  async flush(timeout_ms: number): Promise<void> {
    const deadline_ms = performance.now() + timeout_ms;
    await this.#running;
    while (this.#pending.size > 0) {
      await this.#commitOnce();
      if (this.#pending.size === 0 || performance.now() > deadline_ms) return;
      await wait(FLUSH_retry_ms);
    }
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  /** The group's committed offsets, -1 where there is none. */
  async committed(partitions: readonly TopicPartition[]): Promise<Map<string, number>> {
    const topics = [...Map.groupBy(partitions, (one) => one.topic)].map(([name, ones]) => ({
      name,
      partitionIndexes: ones.map((one) => one.partition),
    }));
    const groups = [{ groupId: this.#coordinator.group, memberId: null, memberEpoch: -1, topics }];
    const answer = await this.#coordinator.ask('commit', offsetFetchV8.api, groups, true);
    const found = new Map<string, number>();
    for (const topic of answer.groups[0]?.topics ?? []) {
      for (const one of topic.partitions) {
        found.set(`${topic.name}/${one.partitionIndex}`, Number(one.committedOffset));
      }
    }
    return found;
  }

  #commitOnce(): Promise<boolean> {
    this.#running ??= this.#commit().then((committed) => {
      this.#running = null;
      this.#failed = !committed;
      if (this.#pending.size > 0) this.#schedule();
      return committed;
    });
    return this.#running;
  }

  async #commit(): Promise<boolean> {
    const generation = this.#options.generation();
    for (const key of this.#pending.keys()) if (!this.#options.owns(key)) this.#pending.delete(key);
    if (generation === null || this.#pending.size === 0) return true;
    const sent = [...this.#pending.values()];
    const topics = [...Map.groupBy(sent, (one) => one.topic)].map(([name, ones]) => ({
      name,
      partitions: ones.map((one) => ({
        partitionIndex: one.partition,
        committedOffset: BigInt(one.offset),
        committedLeaderEpoch: -1,
        committedMetadata: null,
      })),
    }));
    const { id, member_id } = generation;
    try {
      const { group } = this.#coordinator;
      await this.#coordinator.ask('commit', offsetCommitV8.api, group, id, member_id, null, topics);
    } catch (error) {
      const names = kafkaErrorNames(error);
      if (isFenced(names)) {
        // Unless we have joined anew meanwhile: the next commit then carries the new generation.
        if (this.#options.generation() === generation) this.#options.onFenced();
      } else if (!names.has('REBALANCE_IN_PROGRESS')) {
        this.#options.onFault(fault('cannot commit offsets to the consumer group', error));
      }
      return false;
    }
    for (const one of sent) {
      const key = partitionKey(one);
      if (this.#pending.get(key) === one) this.#pending.delete(key);
    }
    return true;
  }
}
