/** A member of a group and the partitions it can take: those of the topics that its pattern matches. */
export interface Candidate {
  readonly id: string;
  readonly topics: ReadonlySet<number>;
}

export interface Seat {
  readonly topic_id: number;
  readonly partition: number;
  /** Who should have it, or null. */
  readonly target: string | null;
}

/**
 * Spreads partitions evenly over the members that can take them, moving as few as possible.
 *
 * First every partition whose member is gone (or no longer wants it) goes to the member with the
 * fewest. Then single partitions move from the fullest member to the emptiest one that can take one
 * of its partitions, until no such move narrows the difference. With equal topics everywhere the
 * loads differ by one at most. Returns the new targets, in the order of the seats; null = nobody can.
 */
export function assign(seats: readonly Seat[], members: readonly Candidate[]): (string | null)[] {
  const candidates = new Map(members.map((member) => [member.id, member]));
  const load = new Map(members.map((member) => [member.id, 0]));
  const targets = seats.map((seat) => {
    const keeps = seat.target !== null && candidates.get(seat.target)?.topics.has(seat.topic_id);
    if (keeps) add(load, seat.target, 1);
    return keeps ? seat.target : null;
  });

  seats.forEach((seat, index) => {
    if (targets[index] !== null) return;
    const taker = emptiest(members, load, seat.topic_id);
    targets[index] = taker;
    if (taker !== null) add(load, taker, 1);
  });

  while (moveOne(seats, targets, members, load));
  return targets;
}

function moveOne(
  seats: readonly Seat[],
  targets: (string | null)[],
  members: readonly Candidate[],
  load: Map<string, number>,
): boolean {
  let best = { gain: 1, index: -1, taker: '' };
  seats.forEach((seat, index) => {
    const holder = targets[index];
    if (!holder) return;
    const taker = emptiest(members, load, seat.topic_id);
    if (taker === null) return;
    const gain = (load.get(holder) ?? 0) - (load.get(taker) ?? 0);
    if (gain > best.gain) best = { gain, index, taker };
  });
  if (best.index < 0) return false;
  add(load, targets[best.index] as string, -1);
  add(load, best.taker, 1);
  targets[best.index] = best.taker;
  return true;
}

function emptiest(
  members: readonly Candidate[],
  load: ReadonlyMap<string, number>,
  topic_id: number,
): string | null {
  let found: string | null = null;
  for (const { id, topics } of members) {
    if (!topics.has(topic_id)) continue;
    if (found === null || (load.get(id) ?? 0) < (load.get(found) ?? 0)) found = id;
  }
  return found;
}

function add(load: Map<string, number>, id: string | null, by: number): void {
  if (id !== null) load.set(id, (load.get(id) ?? 0) + by);
}
