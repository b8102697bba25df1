export {
  NullableText,
  PageQuery,
  Problem,
  page,
  page_items_default,
  page_items_max,
} from './common.ts';
export {
  AttemptAnswer,
  DeadLetterAnswer,
  DeliveryAnswer,
  type DeliveryState,
  deliveryStates,
  RedrivenAnswer,
} from './delivery.ts';
export {
  EventAnswer,
  ExplainAnswer,
  type MatchReason,
  matchReasons,
  PublishAnswer,
  QuarantineAnswer,
} from './event.ts';
export { RedriveCreate, ReplayAnswer, ReplayCreate } from './replay.ts';
export {
  hold_seconds_max,
  max_in_flight_max,
  rotation_overlap_seconds_default,
  rotation_overlap_seconds_max,
  SecretRotation,
  SubscriptionAnswer,
  SubscriptionCreate,
  SubscriptionPatch,
  SubscriptionWithSecret,
  subscriptionDefaults,
  timeout_seconds_max,
  WebhookDestination,
} from './subscription.ts';
