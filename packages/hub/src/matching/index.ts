export {
  explainMatch,
  type MatchExplanation,
  type MatchedEvent,
  type MatchedSubscription,
  type MismatchReason,
  matchesEventType,
  schemaMajor,
} from './match.ts';
