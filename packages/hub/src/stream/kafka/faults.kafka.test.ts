import { Admin, Connection, leaveGroupV4 } from '@platformatic/kafka';
import {
  type KafkaCluster,
  kafkaStartable,
  startKafka,
  until,
  witnessAdmin,
} from '@streaming-hub/testkit';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { wait } from '../../base/index.ts';
import type { Stream } from '../port.ts';
import { after, lost, openStream, publishNumbers, read, text, unique, values } from './testing.ts';

describe.skipIf(!kafkaStartable())('Kafka that fails', () => {
  let cluster: KafkaCluster;
  let streams: Stream[] = [];
  beforeAll(async () => {
    cluster = await startKafka();
  });
  afterEach(async () => {
    await Promise.all(streams.map((stream) => stream.close()));
    streams = [];
  });
  afterAll(() => cluster?.stop());

  function open(options: Parameters<typeof openStream>[1] = {}): Stream {
    const stream = openStream(cluster.brokers, options);
    streams.push(stream);
    return stream;
  }

  async function topicOf(stream: Stream, partitions: number): Promise<string> {
    const name = unique('faults');
    await stream.ensureTopics([{ name, partitions }]);
    return name;
  }

  test('kill -9 and restart of the only broker under load: nothing acknowledged is lost', async () => {
    const stream = open();
    const name = await topicOf(stream, 4);
    const reading = await read(stream, name);
    const publishing = publishNumbers(stream, name, 4);
    await until(() => publishing.acknowledged.size > 200);
    for (let round = 0; round < 2; round += 1) {
      const before = publishing.acknowledged.size;
      await cluster.kill();
      await until(() => !reading.consumer.healthy());
      await cluster.restart();
      await until(() => publishing.acknowledged.size > before + 200, 20_000);
      await until(() => reading.consumer.healthy(), 20_000);
    }
    await publishing.stop();
    expect(await lost(publishing, reading)).toEqual([]);
    expect(publishing.errors).toEqual([]);
    expect(reading.faults.length).toBeGreaterThan(0);
  });

  test('publish gives up after its time, and works again once the broker is back', async () => {
    const stream = open({ delivery_timeout_ms: 500 });
    const name = await topicOf(stream, 1);
    await stream.publish([text(name, 'before')]);
    await cluster.kill();
    await expect(stream.publish([text(name, 'during')])).rejects.toThrow(/publish|reached/);
    await cluster.restart();
    await until(() => stream.publish([text(name, 'after')]));
    const { records } = await read(stream, name);
    await until(() => values(records).includes('after'));
    expect(values(records)[0]).toBe('before');
  });

  test('a topic deleted under the consumer is let go, and found again when made anew', async () => {
    const stream = open();
    const name = await topicOf(stream, 2);
    await stream.publish([text(name, 'old', 0), text(name, 'old', 1)]);
    const reading = await read(stream, name, { refresh_interval_ms: 200 });
    await until(() => reading.records.length === 2);
    await witnessAdmin(cluster.brokers, (admin) => admin.deleteTopics({ topics: [name] }));
    await until(() => reading.consumer.assignments().length === 0);
    await stream.ensureTopics([{ name, partitions: 2 }]);
    // More than one: the group may still remember how far it had come in the old topic.
    await until(async () => {
      await stream.publish([text(name, 'new', 0)]);
      return values(reading.records).includes('new');
    });
  });

  test('records deleted before they were read are reported and passed over', async () => {
    const stream = open();
    const name = await topicOf(stream, 1);
    await stream.publish(Array.from({ length: 10 }, (_, n) => text(name, `${n}`)));
    const admin = new Admin({ clientId: 'retention', bootstrapBrokers: cluster.brokers });
    await admin.deleteRecords({
      topics: [{ name, partitions: [{ partition: 0, offset: 6n }] }],
    });
    await admin.close();
    const reading = await read(stream, name, {
      loadPositions: async () => new Map([[`${name}/0`, 2]]),
    });
    await until(() => reading.records.length === 4);
    expect(values(reading.records)).toEqual(['6', '7', '8', '9']);
    expect(reading.faults.map((fault) => fault.message).join()).toContain(
      'the records 2 to 5 were deleted before they were read',
    );
  });

  test('a position beyond the end begins again at the beginning, with a report', async () => {
    const stream = open();
    const name = await topicOf(stream, 1);
    await stream.publish([text(name, 'a'), text(name, 'b')]);
    const reading = await read(stream, name, {
      loadPositions: async () => new Map([[`${name}/0`, 50]]),
    });
    await until(() => reading.records.length === 2);
    expect(reading.faults.map((fault) => fault.message).join()).toContain('ends at 2, before 50');
  });

  test('new partitions are found and read', async () => {
    const stream = open();
    const name = await topicOf(stream, 1);
    const reading = await read(stream, name);
    await until(() => reading.consumer.assignments().length === 1);
    await witnessAdmin(cluster.brokers, (admin) =>
      admin.createPartitions({ topicPartitions: [{ topic: name, count: 3 }] }),
    );
    await until(async () => {
      await reading.consumer.refresh();
      return reading.consumer.assignments().length === 3;
    });
    await stream.publish([0, 1, 2].map((partition) => text(name, `${partition}`, partition)));
    await until(() => reading.records.length === 3);
  });

  test('a member that the group has removed cannot commit, and joins again', async () => {
    const stream = open();
    const name = await topicOf(stream, 1);
    const group = unique('group');
    const reading = await read(stream, name, {
      group,
      onBatch: async (batch) => {
        if (values(batch.records).includes('slow')) {
          // As an administrator would: the group no longer knows this member.
          const members = await witnessAdmin(cluster.brokers, async (admin) => {
            const { groups } = await admin.describeGroups([group]);
            return groups[0]?.members.map((member) => member.memberId) ?? [];
          });
          await leave(group, members);
        }
        return after(batch);
      },
    });
    await stream.publish([text(name, 'first')]);
    await until(() => reading.records.length === 1);
    const committed = async () => {
      const [found] = await witnessAdmin(cluster.brokers, (admin) =>
        admin.fetchOffsets({ groupId: group, topics: [name] }),
      );
      return found?.partitions[0]?.offset;
    };
    await until(async () => (await committed()) === '1');
    await stream.publish([text(name, 'slow')]);
    await until(() => reading.faults.some((fault) => fault.message.includes('lost the ownership')));
    // The batch's commit was fenced, so the group still says 1 and the record comes once more.
    await until(() => values(reading.records).filter((value) => value === 'slow').length >= 2);
    await until(() => reading.consumer.healthy());
  });

  /** Removes members from a group by the plain protocol request. */
  async function leave(group: string, members: readonly string[]): Promise<void> {
    const connection = new Connection('remover');
    const [host, port] = (cluster.brokers[0] as string).split(':') as [string, string];
    await connection.connect(host, Number(port));
    await leaveGroupV4.api.async(
      connection,
      group,
      members.map((memberId) => ({ memberId })),
    );
    await connection.close();
  }

  test('a blocked event loop beyond the session costs a rejoin, nothing else', async () => {
    const stream = open({ group: { session_timeout_ms: 1_500, heartbeat_interval_ms: 300 } });
    const name = await topicOf(stream, 2);
    const reading = await read(stream, name);
    await stream.publish([text(name, 'a', 0)]);
    await until(() => reading.records.length === 1);
    const end_ms = performance.now() + 3_000;
    while (performance.now() < end_ms);
    await stream.publish([text(name, 'b', 1)]);
    await until(() => values(reading.records).includes('b'), 15_000);
    await until(() => reading.consumer.healthy(), 15_000);
    expect(reading.consumer.assignments().length).toBe(2);
  });

  test('a revoked partition whose batch runs longer than the session is still handed over in order', async () => {
    const group = { session_timeout_ms: 1_500, heartbeat_interval_ms: 200 };
    const stream = open({ group });
    const name = await topicOf(stream, 2);
    const group_id = unique('group');
    const events: string[] = [];
    const onBatch = (who: string) => async (batch: Parameters<typeof after>[0]) => {
      events.push(`${who} begins ${batch.partition}`);
      if (who === 'old') await wait(4_000); // deaf to its signal
      events.push(`${who} ends ${batch.partition}`);
      return after(batch);
    };
    await stream.publish([text(name, 'a', 0), text(name, 'b', 1)]);
    const old = await read(stream, name, { group: group_id, onBatch: onBatch('old') });
    await until(() => events.length === 2);
    const fresh = await read(open({ group }), name, { group: group_id, onBatch: onBatch('new') });
    await until(() => fresh.consumer.assignments().length === 1, 20_000);
    const [given] = fresh.consumer.assignments();
    await stream.publish([text(name, 'c', given?.partition)]);
    await until(() => fresh.records.length === 1, 20_000);
    // Handled once each, the new owner after the old one, which was a member all the while.
    expect(values(fresh.records)).toEqual(['c']);
    expect(events.indexOf(`new begins ${given?.partition}`)).toBeGreaterThan(
      events.indexOf(`old ends ${given?.partition}`),
    );
    expect(old.faults).toEqual([]);
  });

  test('starting while the broker is away waits for it, and so does a first publish', async () => {
    const stream = open();
    const name = await topicOf(stream, 1);
    await stream.publish([text(name, 'waiting')]);
    await cluster.kill();
    const fresh = open();
    const started = read(fresh, name);
    const published = open().publish([text(name, 'first')]);
    await wait(300);
    await cluster.restart();
    const reading = await started;
    await published;
    await until(() => reading.records.length === 2);
  });
});
