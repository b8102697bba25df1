/** Edits (insert, delete, replace) between two short words. */
function distance(left: string, right: string): number {
  let row = Array.from({ length: right.length + 1 }, (_, column) => column);
  for (let i = 1; i <= left.length; i++) {
    const next = [i];
    for (let j = 1; j <= right.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (left[i - 1] === right[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[right.length] ?? 0;
}

/** The known name that looks most like `name`, or null when none does. */
export function nearestName(name: string, known: readonly string[]): string | null {
  const edits_max = 4;
  let best: string | null = null;
  let bestDistance = edits_max + 1;
  for (const candidate of known) {
    const edits = distance(name, candidate);
    if (edits < bestDistance) [best, bestDistance] = [candidate, edits];
  }
  return best;
}
