import fc from 'fast-check';
import { expect, test } from 'vitest';
import { assign, type Candidate, type Seat } from './assign.ts';

const names = ['a', 'b', 'c', 'd', 'e'];
const arbitraryMembers = fc.uniqueArray(
  fc.record({
    id: fc.constantFrom(...names),
    topics: fc.uniqueArray(fc.integer({ min: 1, max: 4 })).map((topics) => new Set(topics)),
  }),
  { selector: (member) => member.id },
);
const arbitrarySeats: fc.Arbitrary<Seat[]> = fc.uniqueArray(
  fc.record({
    topic_id: fc.integer({ min: 1, max: 4 }),
    partition: fc.integer({ min: 0, max: 7 }),
    target: fc.option(fc.constantFrom(...names)),
  }),
  { selector: (seat) => `${seat.topic_id}/${seat.partition}`, maxLength: 32 },
);

function loads(targets: readonly (string | null)[], members: readonly Candidate[]): number[] {
  return members.map(({ id }) => targets.filter((target) => target === id).length);
}

test('every partition goes to a member that can take it, if there is one', () => {
  fc.assert(
    fc.property(arbitrarySeats, arbitraryMembers, (seats, members) => {
      assign(seats, members).forEach((target, index) => {
        const able = members.filter((member) => member.topics.has(seats[index]?.topic_id ?? 0));
        if (able.length === 0) expect(target).toBe(null);
        else expect(able.map((member) => member.id)).toContain(target);
      });
    }),
  );
});

test('no single move could narrow the difference between two members', () => {
  fc.assert(
    fc.property(arbitrarySeats, arbitraryMembers, (seats, members) => {
      const targets = assign(seats, members);
      const load = new Map(
        loads(targets, members).map((count, index) => [members[index]?.id, count]),
      );
      targets.forEach((target, index) => {
        if (target === null) return;
        for (const member of members) {
          if (!member.topics.has(seats[index]?.topic_id ?? 0)) continue;
          expect((load.get(target) ?? 0) - (load.get(member.id) ?? 0)).toBeLessThanOrEqual(1);
        }
      });
    }),
  );
});

test('what is settled stays, and a newcomer takes only its share', () => {
  fc.assert(
    fc.property(arbitrarySeats, fc.integer({ min: 1, max: 4 }), (seats, count) => {
      const everything = new Set([1, 2, 3, 4]);
      const members = names.slice(0, count).map((id) => ({ id, topics: everything }));
      const settled = seats.map((seat, index) => ({
        ...seat,
        target: assign(seats, members)[index] ?? null,
      }));
      const before = settled.map((seat) => seat.target);
      expect(assign(settled, members)).toEqual(before);
      const after = assign(settled, [...members, { id: 'new', topics: everything }]);
      const moved = after.filter((target, index) => target !== before[index]);
      expect(moved.every((target) => target === 'new')).toBe(true);
      expect(moved.length).toBe(Math.floor(seats.length / (count + 1)));
    }),
  );
});
