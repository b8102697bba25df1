/** Which partition a key belongs to: murmur2 with Kafka's seed, as every standard producer does it. */
const SEED = 0x9747b28c;
const MULTIPLIER = 0x5bd1e995;

/** The 32 bit hash (signed), over the key's bytes. */
export function murmur2(key: Buffer): number {
  const length = key.length;
  let hash = SEED ^ length;
  let at = 0;
  for (; at + 4 <= length; at += 4) {
    let word = key.readInt32LE(at);
    word = Math.imul(word, MULTIPLIER);
    word ^= word >>> 24;
    word = Math.imul(word, MULTIPLIER);
    hash = Math.imul(hash, MULTIPLIER) ^ word;
  }
  const rest = length - at;
  if (rest >= 3) hash ^= (key[at + 2] as number) << 16;
  if (rest >= 2) hash ^= (key[at + 1] as number) << 8;
  if (rest >= 1) {
    hash ^= key[at] as number;
    hash = Math.imul(hash, MULTIPLIER);
  }
  hash ^= hash >>> 13;
  hash = Math.imul(hash, MULTIPLIER);
  return hash ^ (hash >>> 15);
}

export function partitionOfKey(key: Buffer, partitions: number): number {
  return (murmur2(key) & 0x7fffffff) % partitions;
}
