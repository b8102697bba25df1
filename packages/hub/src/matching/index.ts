export {
  explainMatch,
  type MatchExplanation,
  type MatchedEvent,
  type MatchedSubscription,
  type MismatchReason,
} from './match.ts';
