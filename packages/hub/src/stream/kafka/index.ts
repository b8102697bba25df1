export type { KafkaSasl } from './connections.ts';
export { KafkaAccessError } from './errors.ts';
export type { KafkaStreamOptions } from './stream.ts';
export { openKafkaStream } from './stream.ts';
