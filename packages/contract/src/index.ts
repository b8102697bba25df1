export { type DeliveryKey, decodeDeliveryId, encodeDeliveryId } from './delivery-id.ts';
export { parseDuration_ms } from './durations.ts';
export {
  type ErrorCode,
  type ErrorEntry,
  errorTable,
  type FieldError,
  fieldError,
  HubError,
  type HubErrorOptions,
  type ProblemDocument,
  toProblem,
} from './errors.ts';
export { checkEventTypePattern, matchesEventType } from './event-types.ts';
export {
  type HttpContext,
  type HttpInput,
  type ParsedEvent,
  parseHttpEvents,
} from './http/parse.ts';
export { limits } from './limits.ts';
export { decodeRecord, type WireRecord } from './record/decode.ts';
export { type EncodedRecord, encodeRecord } from './record/encode.ts';
export {
  type EnvelopeKey,
  type EnvelopeVerdict,
  signEnvelope,
  verifyEnvelope,
} from './record/envelope.ts';
export { isRfc3339, semverMajor, uuidV7Time_ms } from './record/formats.ts';
export type { RawHeader } from './record/headers.ts';
export {
  checkRetrySchedule,
  defaultRetrySchedule_seconds,
  parseRetrySchedule,
  type RetryScheduleCheck,
  retryDelay_seconds,
} from './retry.ts';
export {
  type Attributes,
  type ContractRules,
  defaultRules,
  dlqTopicPattern,
  ingestTopicPattern,
  topicFor,
  typeFor,
} from './rules.ts';
export * from './schemas/index.ts';
export { checkTenantHeaders, type HeaderFault } from './tenant-headers.ts';
export {
  type AcceptedEvent,
  type DropReason,
  dropReasons,
  type Quarantine,
  type QuarantineReason,
  quarantineReasons,
  type Verdict,
} from './verdict.ts';
export { toCloudEventJson } from './webhook/json.ts';
export {
  buildWebhookRequest,
  type WebhookInput,
  type WebhookRequest,
} from './webhook/request.ts';
export { newWebhookSecret, signWebhook } from './webhook/signature.ts';
