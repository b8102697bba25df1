import { HubError } from '@streaming-hub/contract';
import { wait } from '../base/index.ts';
import {
  type OutgoingRecord,
  type RecordPosition,
  RecordTooLargeError,
  UnknownTopicError,
} from '../stream/index.ts';
import type { HttpParts } from './parts.ts';
import { retrySoon } from './problems.ts';

/** Longest wait for the stream to confirm; a request that hangs tells its caller less than a 503. */
const publishTimeout_ms = 10_000;
/** A topic just created is not known to every broker at once. */
const newTopicTries_max = 5;
const newTopicPause_ms = 100;

type PublishParts = Pick<HttpParts, 'stream' | 'publish' | 'log' | 'onTopicCreated'>;

/**
 * Appends records and answers once the stream has them.
 * @throws HubError `validation_failed` for a topic that does not exist and may not be created,
 *   `payload_too_large`, or `stream_unavailable` (then some records may have been appended; sending
 *   them again with the same ids stores each once).
 */
export async function publishRecords(
  parts: PublishParts,
  records: readonly OutgoingRecord[],
): Promise<readonly RecordPosition[]> {
  const giveUp = new AbortController();
  try {
    return await Promise.race([
      publishCreatingTopics(parts, records, giveUp.signal),
      timeout(giveUp.signal),
    ]);
  } catch (error) {
    throw toPublishError(error);
  } finally {
    giveUp.abort();
  }
}

async function timeout(signal: AbortSignal): Promise<never> {
  await wait(publishTimeout_ms, signal);
  throw new Error(`the stream did not confirm within ${publishTimeout_ms} ms`);
}

async function publishCreatingTopics(
  parts: PublishParts,
  records: readonly OutgoingRecord[],
  signal: AbortSignal,
): Promise<readonly RecordPosition[]> {
  for (let tries = 0; ; tries++) {
    try {
      return await parts.stream.publish(records);
    } catch (error) {
      const create = error instanceof UnknownTopicError && parts.publish.topicAutoCreate;
      if (!create || tries === newTopicTries_max || signal.aborted) throw error;
      if (tries > 0) await wait(newTopicPause_ms * tries, signal);
      await createTopics(parts, records);
    }
  }
}

async function createTopics(
  { stream, publish, log, onTopicCreated }: PublishParts,
  records: readonly OutgoingRecord[],
): Promise<void> {
  const names = [...new Set(records.map((record) => record.topic))];
  await stream.ensureTopics(names.map((name) => ({ name, partitions: publish.topicPartitions })));
  // The ingest would find the topic by itself, only later.
  await onTopicCreated?.().catch((error: unknown) =>
    log.warn({ err: error, topics: names }, 'the ingest could not look for the new topics yet'),
  );
}

function toPublishError(error: unknown): HubError {
  if (error instanceof HubError) return error;
  if (error instanceof UnknownTopicError) {
    const detail = `The topic ${error.topic} does not exist: create it, or set STREAMING_HUB_TOPIC_AUTO_CREATE=true.`;
    return new HubError('validation_failed', detail, {
      cause: error,
      errors: [{ field: 'source', message: detail, code: 'unknown_topic' }],
    });
  }
  if (error instanceof RecordTooLargeError) {
    return new HubError('payload_too_large', `The stream refuses the event: ${error.message}`, {
      cause: error,
    });
  }
  return new HubError(
    'stream_unavailable',
    'The stream did not confirm the events; send them again with the same ids, each is stored once.',
    { cause: error, headers: retrySoon },
  );
}
