/** One Produce request (version 9, all in-sync replicas must have it) with batches of many partitions. */
import { type Connection, ProtocolError, type Reader, Writer } from '@platformatic/kafka';

export interface ProducePart {
  readonly topic: string;
  readonly partition: number;
  readonly batch: Buffer;
}

export interface PartitionResult {
  readonly base_offset: number;
  /** Kafka's name of the error, '' when stored. */
  readonly error_name: string;
  readonly error: Error | null;
}

const PRODUCE = 0;
const VERSION = 9;
const ALL_IN_SYNC = -1;

/** Results by `${topic}/${partition}`; rejects when the request as a whole got no answer. */
export function produce(
  connection: Connection,
  parts: readonly ProducePart[],
  timeout_ms: number,
): Promise<Map<string, PartitionResult>> {
  return new Promise((resolve, reject) => {
    connection.send(
      PRODUCE,
      VERSION,
      () => encode(parts, timeout_ms),
      (_correlation, _api, _version, reader) => decode(reader),
      true,
      true,
      (error, results) => {
        if (error) reject(error);
        else resolve(results as Map<string, PartitionResult>);
      },
    );
  });
}

function encode(parts: readonly ProducePart[], timeout_ms: number): Writer {
  const byTopic = [...Map.groupBy(parts, (part) => part.topic)];
  return Writer.create()
    .appendString(null)
    .appendInt16(ALL_IN_SYNC)
    .appendInt32(timeout_ms)
    .appendArray(byTopic, (writer, [topic, ones]) => {
      writer.appendString(topic).appendArray(ones, (inner, one) => {
        inner
          .appendInt32(one.partition)
          .appendUnsignedVarInt(one.batch.length + 1)
          .append(one.batch);
      });
    })
    .appendTaggedFields();
}

function decode(reader: Reader): Map<string, PartitionResult> {
  const results = new Map<string, PartitionResult>();
  reader.readArray((topics) => {
    const topic = topics.readString();
    topics.readArray((partitions) => {
      const partition = partitions.readInt32();
      const code = partitions.readInt16();
      const base_offset = Number(partitions.readInt64());
      partitions.readInt64(); // log append time
      partitions.readInt64(); // log start
      partitions.readArray((errors) => {
        errors.readInt32();
        errors.readNullableString();
      });
      const message = partitions.readNullableString();
      results.set(`${topic}/${partition}`, result(code, base_offset, message));
    });
  });
  return results;
}

/** A batch the broker has already counts as stored (its offset is then unknown to the broker: -1). */
const DUPLICATE_SEQUENCE = 46;

function result(
  code: number,
  base_offset: number,
  message: string | null | undefined,
): PartitionResult {
  if (code === 0 || code === DUPLICATE_SEQUENCE)
    return { base_offset, error_name: '', error: null };
  const error = new ProtocolError(code, message ?? null);
  return { base_offset, error_name: error.apiId, error };
}
