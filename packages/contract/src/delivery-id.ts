/** The three numbers that name a delivery. `seq` is microseconds since the epoch. */
export interface DeliveryKey {
  readonly seq: number;
  readonly lane_id: number;
  readonly subscription_number: number;
}

const int31_max = 0x7fff_ffff;

function hex(value: number, digits: number): string {
  return value.toString(16).padStart(digits, '0');
}

/**
 * Packs a delivery's key into a UUIDv7: 48 bits of milliseconds, version 7, 10 bits of microseconds
 * and 2 spare, variant, 31 bits of lane, 31 bits of subscription. Sorts by sequence.
 * Throws a RangeError for numbers that do not fit.
 */
export function encodeDeliveryId(key: DeliveryKey): string {
  const { seq, lane_id, subscription_number } = key;
  if (!Number.isSafeInteger(seq) || seq < 0) throw new RangeError(`seq ${seq} is out of range`);
  for (const number of [lane_id, subscription_number]) {
    if (!Number.isInteger(number) || number < 0 || number > int31_max) {
      throw new RangeError(`${number} does not fit 31 bits`);
    }
  }
  const ms = Math.floor(seq / 1000);
  const us = seq % 1000;
  const time = hex(ms, 12);
  // Variant (binary 10), then lane and subscription: 2 + 31 + 31 bits in two halves of 32.
  const high = (0b10 * 2 ** 30 + Math.floor(lane_id / 2)) >>> 0;
  const low = ((lane_id % 2) * 2 ** 31 + subscription_number) >>> 0;
  const tail = hex(high, 8) + hex(low, 8);
  return `${time.slice(0, 8)}-${time.slice(8)}-7${hex(us << 2, 3)}-${tail.slice(0, 4)}-${tail.slice(4)}`;
}

const shape = /^([0-9a-f]{8})-([0-9a-f]{4})-7([0-9a-f]{3})-([89ab][0-9a-f]{3})-([0-9a-f]{12})$/i;

/** The key inside a delivery's id; null when the text is no id made by `encodeDeliveryId`. */
export function decodeDeliveryId(id: string): DeliveryKey | null {
  const parts = shape.exec(id);
  if (parts === null) return null;
  const [, time, rest, fine, clock, node] = parts as unknown as string[];
  const ms = Number.parseInt(`${time}${rest}`, 16);
  const us = Number.parseInt(fine as string, 16);
  const seq = ms * 1000 + (us >> 2);
  if ((us & 0b11) !== 0 || us >> 2 > 999 || !Number.isSafeInteger(seq)) return null;
  const tail = `${clock}${node}`;
  const high = Number.parseInt(tail.slice(0, 8), 16);
  const low = Number.parseInt(tail.slice(8), 16);
  const lane_id = (high % 2 ** 30) * 2 + Math.floor(low / 2 ** 31);
  return { seq, lane_id, subscription_number: low % 2 ** 31 };
}
