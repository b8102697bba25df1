/** Which topics match, looked up again and again; says when topics or their partitions changed. */
import { wait } from '../../base/index.ts';
import { Cluster } from './cluster.ts';
import { fault } from './errors.ts';

export interface SubscriptionOptions {
  readonly interval_ms: number;
  onChange(): void;
  onFault(fault: Error): void;
}

export class Subscription {
  readonly #cluster: Cluster;
  readonly #pattern: RegExp;
  readonly #options: SubscriptionOptions;
  readonly #stop = new AbortController();
  #topics: readonly string[] = [];
  #partitions = '';
  #failures = 0;

  constructor(cluster: Cluster, pattern: RegExp, options: SubscriptionOptions) {
    this.#cluster = cluster;
    this.#pattern = new RegExp(`^(?:${pattern.source})$`, pattern.flags.replace(/[gy]/g, ''));
    this.#options = options;
  }

  topics(): readonly string[] {
    return this.#topics;
  }

  healthy(): boolean {
    return this.#failures < 2;
  }

  /** Resolves after the first look; rejects only when the cluster refuses the credentials. */
  async start(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      try {
        await this.#look();
        break;
      } catch (error) {
        const refused = Cluster.refused(error);
        if (refused !== null) throw refused;
        this.#failures += 1;
        this.#options.onFault(fault('cannot list the topics', error));
        await wait(Math.min(1_000, this.#options.interval_ms), this.#stop.signal);
      }
    }
    void this.#run();
  }

  stop(): void {
    this.#stop.abort();
  }

  async refresh(): Promise<void> {
    if (await this.#look()) this.#options.onChange();
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await wait(this.#options.interval_ms, this.#stop.signal);
      if (this.#stop.signal.aborted) return;
      try {
        await this.refresh();
      } catch (error) {
        this.#failures += 1;
        this.#options.onFault(fault('cannot list the topics', error));
      }
    }
  }

  /** True when something changed since the last look. */
  async #look(): Promise<boolean> {
    await this.#cluster.refresh(null);
    this.#failures = 0;
    const matching = this.#cluster.topics().filter((topic) => this.#pattern.test(topic.name));
    const sorted = matching.sort((a, b) => (a.name < b.name ? -1 : 1));
    const partitions = sorted.map((topic) => `${topic.name}:${topic.partitions.length}`).join();
    const changed = partitions !== this.#partitions;
    this.#topics = sorted.map((topic) => topic.name);
    this.#partitions = partitions;
    return changed;
  }
}
