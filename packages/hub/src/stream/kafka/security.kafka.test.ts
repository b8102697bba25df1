import { type KafkaCluster, kafkaStartable, startKafka, until } from '@streaming-hub/testkit';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { KafkaAccessError, type KafkaSasl } from './index.ts';
import { openStream, read, text, unique, values } from './testing.ts';

describe.skipIf(!kafkaStartable())('Kafka with logins and TLS', () => {
  let cluster: KafkaCluster;
  beforeAll(async () => {
    cluster = await startKafka({ security: true });
  });
  afterAll(() => cluster?.stop());

  function security() {
    if (cluster.security === null) throw new Error('this cluster has no security');
    return cluster.security;
  }

  function login(mechanism: KafkaSasl['mechanism'], password = security().password): KafkaSasl {
    return { mechanism, username: security().username, password };
  }

  test.each([
    ['PLAIN', false],
    ['SCRAM-SHA-256', false],
    ['SCRAM-SHA-512', false],
    ['SCRAM-SHA-256', true],
    ['SCRAM-SHA-512', true],
  ] as const)('%s works (TLS: %s), for producer and consumer', async (mechanism, tls) => {
    const { sasl, sasl_tls, ca } = security();
    const stream = openStream([tls ? sasl_tls : sasl], {
      sasl: login(mechanism),
      ...(tls && { tls: { ca } }),
    });
    await roundTrip(stream);
  });

  test('TLS alone works', async () => {
    await roundTrip(openStream([security().tls], { tls: { ca: security().ca } }));
  });

  async function roundTrip(stream: ReturnType<typeof openStream>): Promise<void> {
    const name = unique('secure');
    await stream.ensureTopics([{ name, partitions: 2 }]);
    await stream.publish([text(name, 'secret', 1)]);
    const { records } = await read(stream, name);
    await until(() => records.length === 1);
    expect(values(records)).toEqual(['secret']);
    await stream.close();
  }

  test.each(['PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512'] as const)(
    'a wrong password is said clearly and at once (%s)',
    async (mechanism) => {
      const stream = openStream([security().sasl], { sasl: login(mechanism, 'wrong') });
      const calls = [
        () => stream.ping(),
        () => stream.publish([text('any', 'x')]),
        () => stream.ensureTopics([{ name: 'any', partitions: 1 }]),
        () => read(stream, 'any'),
      ];
      for (const call of calls) {
        const error = await call().catch((reason: unknown) => reason);
        expect(error).toBeInstanceOf(KafkaAccessError);
        expect((error as Error).message).toMatch(/refused the login \(user alice, /);
        expect((error as Error).message).not.toContain('wrong');
      }
      await stream.close();
    },
  );

  test('a missing authority, missing TLS and needless TLS are told apart', async () => {
    const { tls, sasl_tls } = security();
    const untrusted = openStream([tls], { tls: {} });
    await expect(untrusted.ping()).rejects.toThrow(/authority certificate/);
    await untrusted.close();
    const plain = openStream([tls]);
    await expect(plain.ping()).rejects.toThrow(/requires TLS/);
    await plain.close();
    const plainLogin = openStream([sasl_tls], { sasl: login('PLAIN') });
    await expect(plainLogin.ping()).rejects.toThrow(/TLS/);
    await plainLogin.close();
    const needless = openStream(cluster.brokers, { tls: { ca: security().ca } });
    await expect(needless.ping()).rejects.toThrow(/TLS/);
    await needless.close();
  });

  test('nobody listening is said clearly', async () => {
    const stream = openStream(['127.0.0.1:1']);
    await expect(stream.ping()).rejects.toThrow(/127\.0\.0\.1:1/);
    await stream.close();
  });
});
