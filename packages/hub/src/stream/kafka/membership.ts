/**
 * Membership of a consumer group: the classic protocol with cooperative-sticky assignment.
 *
 * States: joining → stable → (rebalance) joining …; from anywhere → lost → joining; → left.
 * A member keeps its partitions while it joins again. Only what the new assignment takes away is
 * given up, after its running batch has ended and its position is committed; then the member joins
 * once more, and only that second round hands those partitions to somebody else.
 *
 * Own code rather than the client's `joinGroup`: that one rejoins silently when a commit is fenced
 * (and then commits for the new owner), offers no moment between losing a partition and giving it
 * up, and never notices new partitions.
 */
import {
  decodeConsumerProtocolAssignment,
  encodeConsumerProtocolAssignment,
  heartbeatV4,
  joinGroupV7,
  leaveGroupV4,
  syncGroupV5,
} from '@platformatic/kafka';
import { backoff_ms, wait } from '../../base/index.ts';
import type { TopicPartition } from '../port.ts';
import { assign, COOPERATIVE_STICKY, encodeSubscription } from './assignment.ts';
import { Cluster } from './cluster.ts';
import type { Coordinator } from './coordinator.ts';
import { fault, KafkaFault, kafkaErrorNames, responseOf } from './errors.ts';
import { partitionKey } from './partition-key.ts';

export interface Generation {
  readonly id: number;
  readonly member_id: string;
}

export interface MembershipOptions {
  readonly session_timeout_ms: number;
  readonly heartbeat_interval_ms: number;
  readonly rebalance_timeout_ms: number;
  /** Names of the topics to take part in, as of now. */
  topics(): readonly string[];
  /** Ends the work on these partitions and commits; the member still owns them until it resolves. */
  onRevoked(partitions: readonly TopicPartition[]): Promise<void>;
  onAssigned(partitions: readonly TopicPartition[]): void;
  /** Ownership is gone already (session expired, fenced): nothing of these may be committed. */
  onLost(partitions: readonly TopicPartition[]): void;
  onFault(fault: Error): void;
}

/** Without an answer the group notices by itself, when the session ends. */
const LEAVE_TIMEOUT_ms = 2_000;

export class Membership {
  readonly #cluster: Cluster;
  readonly #coordinator: Coordinator;
  readonly #options: MembershipOptions;
  readonly #stop = new AbortController();
  readonly #joined = Promise.withResolvers<void>();
  #generation: Generation | null = null;
  #joining = false;
  #member_id = '';
  #last_generation = -1;
  #owned: readonly TopicPartition[] = [];
  #contact_ms = 0;
  #failures = 0;
  #wake = new AbortController();
  #loop: Promise<void> | null = null;

  constructor(cluster: Cluster, coordinator: Coordinator, options: MembershipOptions) {
    this.#cluster = cluster;
    this.#coordinator = coordinator;
    this.#options = options;
    this.#joined.promise.catch(() => {});
  }

  /** Resolves at the first join; rejects only when the cluster refuses the credentials. */
  start(): Promise<void> {
    this.#loop ??= this.#run();
    return this.#joined.promise;
  }

  /** What a commit must carry; null while this is no member, and during a join. */
  generation(): Generation | null {
    return this.#joining ? null : this.#generation;
  }

  owned(): readonly TopicPartition[] {
    return this.#owned;
  }

  /** Whether the coordinator has answered lately. */
  reachable(): boolean {
    return this.#generation !== null && this.#failures < 2;
  }

  /** Joins again soon: topics or their partitions changed. */
  rejoin(): void {
    this.#wake.abort();
  }

  /** A commit was fenced: somebody else may own everything by now. */
  fenced(): void {
    this.#lose();
    this.rejoin();
  }

  /** Leaves the group. The caller has committed everything before. */
  async stop(): Promise<void> {
    this.#stop.abort();
    this.#wake.abort();
    this.#joined.reject(new KafkaFault('the consumer was stopped before it joined its group'));
    this.#generation = null;
    if (this.#member_id !== '') {
      await Promise.race([this.#leave(this.#member_id), wait(LEAVE_TIMEOUT_ms)]);
    }
    await this.#coordinator.close();
    await this.#loop;
  }

  async #leave(member_id: string): Promise<void> {
    try {
      await this.#coordinator.ask('leave', leaveGroupV4.api, this.#coordinator.group, [
        { memberId: member_id },
      ]);
    } catch (error) {
      this.#options.onFault(fault('cannot leave the consumer group', error));
    }
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        await this.#cycle();
        this.#failures = 0;
      } catch (error) {
        if (this.#stop.signal.aborted) return;
        this.#failures += 1;
        this.#handle(error);
        await wait(backoff_ms(this.#failures, 50, 1_000), this.#stop.signal);
      }
    }
  }

  /** One generation: join, take over the assignment, heartbeat until something changes. */
  async #cycle(): Promise<void> {
    this.#wake = new AbortController();
    const wake = AbortSignal.any([this.#wake.signal, this.#stop.signal]);
    this.#joining = true;
    const assigned = await this.#join().finally(() => {
      this.#joining = false;
    });
    if (this.#stop.signal.aborted) return;
    const keys = new Set(assigned.map(partitionKey));
    const owned = new Set(this.#owned.map(partitionKey));
    const revoked = this.#owned.filter((one) => !keys.has(partitionKey(one)));
    this.#owned = assigned;
    const released = new AbortController();
    const ending = this.#heartbeat(wake, released.signal);
    this.#options.onAssigned(assigned.filter((one) => !owned.has(partitionKey(one))));
    this.#joined.resolve();
    if (revoked.length > 0) {
      await this.#options.onRevoked(revoked);
      this.#wake.abort(); // the second round
    }
    released.abort();
    await ending;
  }

  async #join(): Promise<TopicPartition[]> {
    const { session_timeout_ms, rebalance_timeout_ms } = this.#options;
    const { group } = this.#coordinator;
    const topics = [...this.#options.topics()];
    const metadata = encodeSubscription(topics, this.#owned, this.#last_generation);
    const protocols = [{ name: COOPERATIVE_STICKY, metadata }];
    const join = (member_id: string) =>
      this.#coordinator.ask(
        'join',
        joinGroupV7.api,
        ...([group, session_timeout_ms, rebalance_timeout_ms, member_id, null] as const),
        ...(['consumer', protocols] as const),
      );
    let joined: joinGroupV7.JoinGroupResponse;
    try {
      joined = await join(this.#member_id);
    } catch (error) {
      if (!kafkaErrorNames(error).has('MEMBER_ID_REQUIRED')) throw error;
      // The ordinary first step: the broker names the member, which then joins under that name.
      this.#member_id = responseOf<joinGroupV7.JoinGroupResponse>(error)?.memberId ?? '';
      joined = await join(this.#member_id);
    }
    this.#member_id = joined.memberId;
    const { generationId, memberId, protocolName } = joined;
    const leads = joined.leader === memberId;
    const assignments = leads ? await this.#assignAll(joined.members) : [];
    const synced = await this.#coordinator.ask(
      'join',
      syncGroupV5.api,
      ...([group, generationId, memberId, null, 'consumer', protocolName, assignments] as const),
    );
    this.#contact();
    this.#generation = { id: generationId, member_id: memberId };
    this.#last_generation = generationId;
    return decodeConsumerProtocolAssignment(synced.assignment).assignedPartitions.flatMap(
      ({ topic, partitions }) => partitions.map((partition) => ({ topic, partition })),
    );
  }

  async #assignAll(members: readonly joinGroupV7.JoinGroupResponseMember[]) {
    const shares = await assign(this.#cluster, members);
    return [...shares].map(([memberId, assignedPartitions]) => ({
      memberId,
      assignment: encodeConsumerProtocolAssignment({ version: 1, assignedPartitions }),
    }));
  }

  /**
   * Heartbeats until the group rebalances, the membership is lost, or `wake` asks for a new join;
   * in any case until revoked partitions are `released`, however long their last batch takes.
   */
  async #heartbeat(wake: AbortSignal, released: AbortSignal): Promise<void> {
    const { heartbeat_interval_ms, session_timeout_ms } = this.#options;
    let rebalance = false;
    for (;;) {
      await wait(heartbeat_interval_ms, released.aborted ? wake : released);
      if (this.#stop.signal.aborted) return;
      const generation = this.#generation;
      if (generation === null) return;
      if (released.aborted && (rebalance || wake.aborted)) return;
      const { id, member_id } = generation;
      try {
        const { group } = this.#coordinator;
        await this.#coordinator.ask('heartbeat', heartbeatV4.api, group, id, member_id, null);
        this.#contact();
      } catch (error) {
        const names = kafkaErrorNames(error);
        if (names.has('REBALANCE_IN_PROGRESS')) {
          this.#contact();
          rebalance = true;
          if (released.aborted) return;
          continue;
        }
        if (isFenced(names)) {
          if (names.has('UNKNOWN_MEMBER_ID')) this.#member_id = '';
          this.#lose();
          return;
        }
        this.#failures += 1;
        this.#options.onFault(fault('no heartbeat to the consumer group', error));
        // Beyond the session the group may have given our partitions to others already.
        if (performance.now() - this.#contact_ms > session_timeout_ms) {
          this.#lose();
          return;
        }
      }
    }
  }

  #contact(): void {
    this.#contact_ms = performance.now();
    this.#failures = 0;
  }

  #handle(error: unknown): void {
    const names = kafkaErrorNames(error);
    if (names.has('REBALANCE_IN_PROGRESS')) return; // others joined meanwhile: join again
    const refused = Cluster.refused(error);
    if (refused !== null) this.#joined.reject(refused);
    if (names.has('UNKNOWN_MEMBER_ID')) this.#member_id = '';
    const expired = performance.now() - this.#contact_ms > this.#options.session_timeout_ms;
    if (isFenced(names) || expired) this.#lose();
    const electing = [
      'COORDINATOR_NOT_AVAILABLE',
      'NOT_COORDINATOR',
      'COORDINATOR_LOAD_IN_PROGRESS',
    ];
    if (!isFenced(names) && !electing.some((name) => names.has(name))) {
      this.#options.onFault(fault('cannot join the consumer group', error));
    }
  }

  #lose(): void {
    const lost = this.#owned;
    this.#owned = [];
    this.#generation = null;
    this.#last_generation = -1;
    if (lost.length > 0) this.#options.onLost(lost);
  }
}

export function isFenced(names: ReadonlySet<string>): boolean {
  return (
    names.has('UNKNOWN_MEMBER_ID') ||
    names.has('ILLEGAL_GENERATION') ||
    names.has('FENCED_INSTANCE_ID')
  );
}
