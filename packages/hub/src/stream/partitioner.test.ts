import { expect, test } from 'vitest';
import { murmur2, partitionForKey } from './partitioner.ts';

/** From Kafka's own tests of its utilities, as signed numbers. */
const hashes: readonly (readonly [text: string, hash: number])[] = [
  ['21', -973932308],
  ['foobar', -790332482],
  ['a-little-bit-long-string', -985981536],
  ['a-little-bit-longer-string', -1486304829],
  ['lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8', -58897971],
  ['abc', 479470107],
];

test('murmur2 gives what Kafka gives', () => {
  for (const [text, hash] of hashes) expect(murmur2(Buffer.from(text)) | 0).toBe(hash);
});

test('a key of any length has a partition', () => {
  for (let length = 0; length < 40; length++) {
    const partition = partitionForKey(Buffer.alloc(length, 0xff), 12);
    expect(partition).toBeGreaterThanOrEqual(0);
    expect(partition).toBeLessThan(12);
  }
});
