const seed = 0x9747b28c;
const multiplier = 0x5bd1e995;

/** Kafka's murmur2 of the bytes, as an unsigned 32-bit number. */
export function murmur2(bytes: Buffer): number {
  const length = bytes.length;
  const whole = length & ~3;
  let hash = seed ^ length;
  for (let at = 0; at < whole; at += 4) {
    let word = Math.imul(bytes.readInt32LE(at), multiplier);
    word = Math.imul(word ^ (word >>> 24), multiplier);
    hash = Math.imul(hash, multiplier) ^ word;
  }
  if (whole < length) {
    for (let at = length - 1; at >= whole; at--) hash ^= (bytes[at] ?? 0) << (8 * (at - whole));
    hash = Math.imul(hash, multiplier);
  }
  hash = Math.imul(hash ^ (hash >>> 13), multiplier);
  return (hash ^ (hash >>> 15)) >>> 0;
}

/** The partition that Kafka's own producer gives a record with this key. */
export function partitionForKey(key: Buffer, partitions: number): number {
  return (murmur2(key) & 0x7fffffff) % partitions;
}
