import fc from 'fast-check';
import { expect, test } from 'vitest';
import { decodeDeliveryId, encodeDeliveryId } from './delivery-id.ts';
import { uuidV7Time_ms } from './record/formats.ts';

const int31 = fc.integer({ min: 0, max: 0x7fff_ffff });
const key = fc.record({
  seq: fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }),
  lane_id: int31,
  subscription_number: int31,
});

test('a key survives the round trip, as a UUIDv7 of its time', () => {
  fc.assert(
    fc.property(key, (value) => {
      const id = encodeDeliveryId(value);
      expect(uuidV7Time_ms(id)).toBe(Math.floor(value.seq / 1000));
      expect(decodeDeliveryId(id)).toEqual(value);
      expect(decodeDeliveryId(id.toUpperCase())).toEqual(value);
    }),
  );
});

test('identifiers sort as their sequence numbers do', () => {
  fc.assert(
    fc.property(key, key, (one, other) => {
      fc.pre(one.seq < other.seq);
      expect(encodeDeliveryId(one) < encodeDeliveryId(other)).toBe(true);
    }),
  );
});

test.each([
  '',
  'x',
  '019bc1f1-8600-4000-8000-00000000000a',
  '019bc1f1-8600-7001-8000-00000000000a',
  '019bc1f1-8600-7fff-8000-00000000000a',
  'ffffffff-ffff-7000-8000-00000000000a',
])('%j names no delivery', (id) => {
  expect(decodeDeliveryId(id)).toBeNull();
});

test('numbers that do not fit are refused', () => {
  const fine = { seq: 1, lane_id: 1, subscription_number: 1 };
  expect(() => encodeDeliveryId({ ...fine, seq: -1 })).toThrow(RangeError);
  expect(() => encodeDeliveryId({ ...fine, lane_id: 2 ** 31 })).toThrow(RangeError);
  expect(() => encodeDeliveryId({ ...fine, subscription_number: 1.5 })).toThrow(RangeError);
});
