import { readdirSync, readFileSync } from 'node:fs';

/**
 * CPU time and memory of processes, read from /proc (Linux). Children that have ended count through
 * the parent that waited for them, so a Postgres whose backends come and go is counted whole.
 */
const ticksPerSecond = 100;

interface Stat {
  readonly pid: number;
  readonly parent: number;
  readonly name: string;
  readonly own_ticks: number;
  readonly children_ticks: number;
}

/** Null when the process is gone, or where there is no /proc. */
function readStat(pid: number): Stat | null {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch {
    return null;
  }
  // The name is in parentheses and may hold spaces; everything behind it is plain.
  const end = text.lastIndexOf(')');
  const fields = text.slice(end + 2).split(' ');
  return {
    pid,
    name: text.slice(text.indexOf('(') + 1, end),
    parent: Number(fields[1]),
    own_ticks: Number(fields[11]) + Number(fields[12]),
    children_ticks: Number(fields[13]) + Number(fields[14]),
  };
}

function everyStat(): Stat[] {
  try {
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map((name) => readStat(Number(name)))
      .filter((stat) => stat !== null);
  } catch {
    return [];
  }
}

function treeOf(root: number, all: readonly Stat[]): Stat[] {
  const tree = all.filter((stat) => stat.pid === root);
  for (let at = 0; at < tree.length; at += 1) {
    const parent = tree[at]?.pid;
    tree.push(...all.filter((stat) => stat.parent === parent));
  }
  return tree;
}

/** CPU seconds (user and system) of a process, its living descendants and its ended ones. */
export function cpuSeconds(root: number): number {
  const tree = treeOf(root, everyStat());
  return tree.reduce((sum, s) => sum + s.own_ticks + s.children_ticks, 0) / ticksPerSecond;
}

/** The first descendant of this process with that name, such as `java`. */
export function descendantNamed(name: string): number | null {
  const found = treeOf(process.pid, everyStat()).find((stat) => stat.name === name);
  return found?.pid ?? null;
}

/** Resident memory in MiB: highest so far of one process. */
export function peakMemory_mib(pid: number): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'latin1');
    return Math.round(Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? Number.NaN) / 1024);
  } catch {
    return Number.NaN;
  }
}
