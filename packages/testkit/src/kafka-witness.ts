/** A second, independent Kafka client, to check ours against: what one writes the other must read. */
import { type Admin, type IHeaders, Kafka, logLevel } from 'kafkajs';

export interface WitnessRecord {
  readonly partition: number;
  readonly offset: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: IHeaders;
}

export function kafkaWitness(brokers: readonly string[]): Kafka {
  return new Kafka({
    brokers: [...brokers],
    clientId: 'witness',
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 50, retries: 20 },
  });
}

/** Runs something with the witness's admin client. */
export async function witnessAdmin<T>(
  brokers: readonly string[],
  use: (admin: Admin) => Promise<T>,
): Promise<T> {
  const admin = kafkaWitness(brokers).admin();
  await admin.connect();
  try {
    return await use(admin);
  } finally {
    await admin.disconnect();
  }
}

/** Reads a topic from the beginning until `count` records have come. */
export async function witnessRead(
  brokers: readonly string[],
  topic: string,
  count: number,
): Promise<WitnessRecord[]> {
  const consumer = kafkaWitness(brokers).consumer({ groupId: `witness-${topic}-${Date.now()}` });
  const records: WitnessRecord[] = [];
  await consumer.connect();
  try {
    await consumer.subscribe({ topic, fromBeginning: true });
    await new Promise<void>((resolve, reject) => {
      consumer
        .run({
          eachMessage: async ({ partition, message }) => {
            const { key, value, headers, offset } = message;
            records.push({
              partition,
              offset: Number(offset),
              key,
              value,
              headers: headers ?? {},
            });
            if (records.length === count) resolve();
          },
        })
        .catch(reject);
    });
    return records;
  } finally {
    await consumer.disconnect();
  }
}
