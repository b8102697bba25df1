export type * from './port.ts';
export { RecordTooLargeError, UnknownTopicError } from './port.ts';
