import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { wait } from '../../base/index.ts';
import {
  after,
  exactly,
  gate,
  type Harness,
  literally,
  numbered,
  outgoing,
  values,
} from './harness.ts';

const mebibyte = 1024 * 1024;

export function consumingCases(harness: () => Harness): void {
  test('order is kept per partition, with records from before and after the start', async () => {
    const { stream, topic, consume, eventually } = harness();
    const name = await topic(3);
    const publishAll = async (first: number) => {
      for (let n = first; n < first + 50; n++) {
        await Promise.all([0, 1, 2].map((p) => stream.publish(numbered(name, p, 2, n * 2))));
      }
    };
    await publishAll(0);
    const taken = await consume(name);
    await publishAll(50);
    await eventually(() => taken.records.length >= 600);
    for (const partition of [0, 1, 2]) {
      const own = taken.records.filter((record) => record.partition === partition);
      expect(values(own)).toEqual(Array.from({ length: 200 }, (_, n) => `${n}`));
      for (const [n, record] of own.entries()) {
        expect(record.topic).toBe(name);
        if (n > 0) expect(record.offset).toBeGreaterThan(own[n - 1]?.offset ?? 0);
      }
    }
    expect(taken.faults).toEqual([]);
    expect(taken.consumer.healthy()).toBe(true);
  });

  test('batches respect both limits and one partition has one batch at a time', async () => {
    const { stream, topic, consume, eventually } = harness();
    const name = await topic(2);
    const running = new Map<number, number>();
    let most = 0;
    await stream.publish([...numbered(name, 0, 100), ...numbered(name, 1, 100)]);
    await stream.publish(
      Array.from({ length: 20 }, () => outgoing(name, 'x'.repeat(400), { partition: 0 })),
    );
    const taken = await consume(name, {
      batch_records_max: 10,
      batch_bytes_max: 1000,
      onBatch: async (batch) => {
        const now = (running.get(batch.partition) ?? 0) + 1;
        running.set(batch.partition, now);
        most = Math.max(most, now);
        await wait(1);
        running.set(batch.partition, now - 1);
        return after(batch);
      },
    });
    await eventually(() => taken.records.length === 220);
    expect(most).toBe(1);
    expect(taken.batches.length).toBeGreaterThanOrEqual(30);
    for (const { records } of taken.batches) {
      expect(records.length).toBeGreaterThan(0);
      expect(records.length).toBeLessThanOrEqual(10);
      const bytes = records.reduce((sum, record) => sum + (record.value?.length ?? 0), 0);
      if (records.length > 1) expect(bytes).toBeLessThanOrEqual(2000);
    }
  });

  test('partitions run side by side', async () => {
    const { stream, topic, consume, eventually } = harness();
    const name = await topic(2);
    const seen = new Set<number>();
    const both = gate();
    await stream.publish([...numbered(name, 0, 1), ...numbered(name, 1, 1)]);
    const taken = await consume(name, {
      onBatch: async (batch) => {
        seen.add(batch.partition);
        if (seen.size === 2) both.open();
        await both.opened;
        return after(batch);
      },
    });
    await eventually(() => taken.records.length === 2);
  });

  test('a consumer goes on where the group has committed', async () => {
    const { stream, topic, consume, eventually, name: unique } = harness();
    const name = await topic();
    const group = unique('group');
    await stream.publish(numbered(name, 0, 10));
    const first = await consume(name, { group });
    await eventually(() => first.records.length === 10);
    await first.consumer.stop();
    await stream.publish(numbered(name, 0, 5, 10));
    const second = await consume(name, { group });
    await eventually(() => second.records.length === 5);
    expect(values(second.records)).toEqual(['10', '11', '12', '13', '14']);
  });

  test('positions that the caller has stored win over committed ones', async () => {
    const { stream, topic, consume, eventually, name: unique } = harness();
    const name = await topic(2);
    const group = unique('group');
    const positions = await stream.publish([...numbered(name, 0, 10), ...numbered(name, 1, 10)]);
    const first = await consume(name, { group });
    await eventually(() => first.records.length === 20);
    await first.consumer.stop();
    const asked: string[] = [];
    let failures = 0;
    const second = await consume(name, {
      group,
      loadPositions: async (partitions) => {
        if (failures++ < 1) throw new Error('not yet');
        asked.push(...partitions.map((one) => `${one.topic}/${one.partition}`));
        return new Map([[`${name}/0`, positions[7]?.offset ?? -1]]);
      },
    });
    await eventually(() => second.records.length === 3);
    expect(values(second.records)).toEqual(['7', '8', '9']);
    expect(asked.sort()).toEqual([`${name}/0`, `${name}/1`]);
    expect(second.faults.length).toBeGreaterThan(0);
  });

  test('the offset that onBatch returns is respected, back and ahead', async () => {
    const { stream, topic, consume, eventually } = harness();
    const name = await topic();
    const positions = await stream.publish(numbered(name, 0, 10));
    const offset = (n: number) => positions[n]?.offset ?? -1;
    const offered: string[][] = [];
    await consume(name, {
      batch_records_max: 4,
      onBatch: async (batch) => {
        offered.push(values(batch.records) as string[]);
        if (offered.length === 1) return offset(2); // half of it
        if (offered.length === 2) return offset(0); // all the way back
        if (offered.length === 3) return offset(8); // over some
        return after(batch);
      },
    });
    await eventually(() => offered.length >= 4);
    expect(offered[1]?.[0]).toBe('2');
    expect(offered[2]?.[0]).toBe('0');
    expect(offered.slice(3).flat()).toEqual(['8', '9']);
  });

  test('a batch that throws holds only its partition and is offered again as it was', async () => {
    const { stream, topic, consume, eventually } = harness();
    const name = await topic(2);
    const tries: string[][] = [];
    await stream.publish([...numbered(name, 0, 5), ...numbered(name, 1, 5)]);
    let other_done_at = -1;
    const taken = await consume(name, {
      onBatch: async (batch) => {
        if (batch.partition === 1) {
          other_done_at = tries.length;
          return after(batch);
        }
        tries.push(values(batch.records) as string[]);
        if (tries.length <= 3 || other_done_at < 0) throw new Error('not today');
        return after(batch);
      },
    });
    await stream.publish(numbered(name, 0, 3, 5));
    await eventually(() => taken.records.length === 13);
    for (const again of tries.slice(1, 4)) expect(again).toEqual(tries[0]);
    const held = taken.records.filter((record) => record.partition === 0);
    expect(values(held)).toEqual(['0', '1', '2', '3', '4', '5', '6', '7']);
    expect(taken.faults.length).toBeGreaterThanOrEqual(3);
  });

  test('memory is bounded while the handler is slow', { timeout: 60_000 }, async () => {
    const { stream, topic, consume, eventually, quiet_ms } = harness();
    const name = await topic(4);
    const value = Buffer.alloc(512 * 1024, 'x');
    for (let n = 0; n < 8; n++) {
      await stream.publish(
        [0, 1, 2, 3].flatMap((partition) =>
          [0, 1].map(() => ({ topic: name, partition, key: null, value, headers: [] })),
        ),
      );
    }
    const release = gate();
    const before = bufferBytes();
    const taken = await consume(name, {
      batch_bytes_max: mebibyte,
      buffered_bytes_max: 2 * mebibyte,
      onBatch: async (batch) => {
        await release.opened;
        return after(batch);
      },
    });
    await eventually(() => taken.batches.length > 0);
    await wait(quiet_ms * 2);
    // 32 MiB wait in the stream. Room for what is in flight: a response being parsed, one batch per partition.
    expect(bufferBytes() - before).toBeLessThan(14 * mebibyte);
    release.open();
    await eventually(() => taken.records.length === 64);
  });

  test('new topics are found by refresh() and by the interval', async () => {
    const { stream, consume, eventually, name: unique } = harness();
    const prefix = unique('family');
    const pattern = new RegExp(`${literally(prefix)}\\.[a-z]+`);
    const create = (topic: string) => stream.ensureTopics([{ name: topic, partitions: 1 }]);
    await create(`${prefix}.a`);
    const slow = await consume(pattern, { refresh_interval_ms: 3_600_000 });
    const quick = await consume(pattern, { refresh_interval_ms: 200 });
    await create(`${prefix}.b`);
    await create(`${prefix}.b.other`); // only a part of the name matches
    await stream.publish(['a', 'b', 'b.other'].map((end) => outgoing(`${prefix}.${end}`, end)));
    await eventually(() => quick.records.length === 2);
    await eventually(async () => {
      await slow.consumer.refresh();
      return slow.consumer.assignments().length === 2;
    });
    await eventually(() => slow.records.length === 2);
    expect(new Set(values(slow.records))).toEqual(new Set(['a', 'b']));
    expect(new Set(values(quick.records))).toEqual(new Set(['a', 'b']));
  });

  test('stop aborts the signal, waits for the running batch and commits it', async () => {
    const { stream, topic, consume, eventually, quiet_ms, name: unique } = harness();
    const name = await topic();
    const group = unique('group');
    const release = gate();
    await stream.publish(numbered(name, 0, 3));
    const first = await consume(name, {
      group,
      onBatch: async (batch) => {
        await release.opened;
        return after(batch);
      },
    });
    await eventually(() => first.batches.length === 1);
    let stopped = false;
    const stopping = first.consumer.stop().then(() => {
      stopped = true;
    });
    await eventually(() => first.batches[0]?.signal.aborted);
    await wait(quiet_ms);
    expect(stopped).toBe(false);
    release.open();
    await stopping;
    await first.consumer.stop();
    expect(first.consumer.assignments()).toEqual([]);
    const handled = first.records.length;
    const second = await consume(name, { group });
    await stream.publish(numbered(name, 0, 1, 3));
    await eventually(() => second.records.length === 4 - handled);
    expect(values(second.records)[0]).toBe(`${handled}`);
  });

  test('stop gives up waiting after its time', async () => {
    const { stream, topic, consume, eventually } = harness();
    const name = await topic();
    await stream.publish(numbered(name, 0, 1));
    const release = gate();
    const taken = await consume(name, {
      onBatch: (batch) => release.opened.then(() => after(batch)),
    });
    await eventually(() => taken.batches.length === 1);
    await taken.consumer.stop(50);
    release.open();
  });

  test('start and stop may be called twice, and stop before start', async () => {
    const { stream, topic, consume, eventually, name: unique } = harness();
    const name = await topic();
    await stream.publish(numbered(name, 0, 1));
    const never = stream.consume({
      group: unique('group'),
      topics: exactly(name),
      refresh_interval_ms: 60_000,
      batch_records_max: 10,
      batch_bytes_max: 1000,
      buffered_bytes_max: 1000,
      loadPositions: async () => new Map(),
      onBatch: async (batch) => after(batch),
      onFault: () => {},
    });
    await Promise.all([never.stop(), never.stop()]);
    expect(never.assignments()).toEqual([]);
    const taken = await consume(name);
    await taken.consumer.start();
    await eventually(() => taken.records.length === 1);
    await Promise.all([taken.consumer.stop(), taken.consumer.stop()]);
    expect(taken.records.length).toBe(1);
  });

  test('lag counts what lies beyond the position', async () => {
    const { stream, topic, consume, eventually } = harness();
    const name = await topic(2);
    const release = gate();
    let held = false;
    await stream.publish([...numbered(name, 0, 4), ...numbered(name, 1, 3)]);
    const taken = await consume(name, {
      onBatch: async (batch) => {
        if (held) await release.opened;
        return after(batch);
      },
    });
    const total = async () => {
      const lag = await taken.consumer.lag();
      return lag.length === 2 ? lag.reduce((sum, one) => sum + one.lag, 0) : -1;
    };
    await eventually(async () => (await total()) === 0);
    held = true;
    await stream.publish([...numbered(name, 0, 3), ...numbered(name, 1, 2)]);
    await eventually(async () => (await total()) === 5);
    const reached = (await taken.consumer.lag()).map((one) => one.position);
    expect(new Set(reached)).toEqual(new Set([3, 4]));
    release.open();
    await eventually(async () => (await total()) === 0);
  });

  test('a topic without records is assigned and has no lag', async () => {
    const { topic, consume, eventually } = harness();
    const name = await topic(2);
    const taken = await consume(exactly(name));
    await eventually(() => taken.consumer.assignments().length === 2);
    await eventually(async () => {
      const lag = await taken.consumer.lag();
      return lag.length === 2 && lag.every((one) => one.lag === 0);
    });
  });
}

/** Bytes in buffers that are still in use. */
function bufferBytes(): number {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  collect();
  collect();
  return process.memoryUsage().arrayBuffers;
}
