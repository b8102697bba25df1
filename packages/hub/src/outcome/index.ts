export type { DecideInput, Decision } from './decide.ts';
export { decide } from './decide.ts';
export type { RecorderOptions } from './recorder.ts';
export { Recorder } from './recorder.ts';
export type { AttemptRecord, Change, DeliveredAttempt, DeliveryKey } from './types.ts';
