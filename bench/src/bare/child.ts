/** What the bare loops share: they run in a process of their own and report their own cost. */
export interface BareReport {
  readonly count: number;
  readonly seconds: number;
  /** User and system time of this process while it worked. */
  readonly cpu_seconds: number;
}

/** Runs the work, tells the parent and ends. Preparation belongs outside of `work`. */
export async function measure(work: () => Promise<number>): Promise<void> {
  const cpu_before = process.cpuUsage();
  const started_ms = performance.now();
  const count = await work();
  const seconds = (performance.now() - started_ms) / 1000;
  const cpu = process.cpuUsage(cpu_before);
  const report: BareReport = { count, seconds, cpu_seconds: (cpu.user + cpu.system) / 1e6 };
  process.send?.(report, () => process.exit(0));
}

/** The arguments as given by `runBare`. */
export function parameters<T>(): T {
  process.on('disconnect', () => process.exit(0));
  return JSON.parse(process.argv[2] ?? '{}') as T;
}
