export type { KafkaSasl } from './connections.ts';
export { KafkaAccessError, KafkaFault } from './errors.ts';
export type { KafkaStreamOptions } from './stream.ts';
export { openKafkaStream } from './stream.ts';
