export { type EmbeddedStreamOptions, openEmbeddedStream } from './embedded/index.ts';
export { removeLeftMembers } from './embedded/left-members.ts';
export {
  KafkaAccessError,
  type KafkaSasl,
  type KafkaStreamOptions,
  openKafkaStream,
} from './kafka/index.ts';
export { openStream } from './open.ts';
export type * from './port.ts';
export { RecordTooLargeError, UnknownTopicError } from './port.ts';
