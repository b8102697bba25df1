import { limits } from './limits.ts';

/** Context attributes by CloudEvents name (no prefix), plus `traceparent` and `tracestate`. */
export type Attributes = Readonly<Record<string, string>>;

/** Which revision of the wire contract is spoken, and its settings. */
export interface ContractRules {
  /** `v3`: one topic per producing application. `v1`: one topic per event, with the roster gate. */
  readonly grammar: 'v3' | 'v1';
  readonly topic_prefix: string;
  readonly type_prefix: string;
  /** An id whose own time lies further ahead than this is refused. */
  readonly id_future_max_ms: number;
  /** v1 only: tenants that may pass the roster gate; null = all. */
  readonly tenants: ReadonlySet<string> | null;
}

export const defaultRules: ContractRules = {
  grammar: 'v3',
  topic_prefix: 'lerian.streaming.',
  type_prefix: 'studio.lerian.',
  id_future_max_ms: 4 * 7 * 24 * 3_600_000,
  tenants: null,
};

const appSegment = `[a-z0-9][a-z0-9_-]{0,${limits.source_bytes_max - 1}}`;
const v1Segment = '[a-z0-9_]+';

function escapePattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\/-]/g, '\\$&');
}

/** Full names of topics that carry events. `.commands` and `.dlq` topics never match. */
export function ingestTopicPattern(rules: ContractRules): RegExp {
  const prefix = escapePattern(rules.topic_prefix);
  if (rules.grammar === 'v3') return new RegExp(`^${prefix}${appSegment}$`);
  return new RegExp(`^${prefix}${v1Segment}\\.(?!(?:dlq|commands)$)${v1Segment}(?:\\.v[0-9]+)?$`);
}

/** Full names of the producers' dead-letter topics. */
export function dlqTopicPattern(rules: ContractRules): RegExp {
  const prefix = escapePattern(rules.topic_prefix);
  if (rules.grammar === 'v3') return new RegExp(`^${prefix}${appSegment}\\.dlq$`);
  return new RegExp(`^${prefix}${v1Segment}(?:\\.${v1Segment}(?:\\.v[0-9]+)?)?\\.dlq$`);
}

function v1Name(text: string): string {
  return text.toLowerCase().replace(/[^a-z0-9_]/g, '_');
}

/** The topic an event is published to. Does not validate the attributes; the reader does. */
export function topicFor(attributes: Attributes, rules: ContractRules): string {
  const source = attributes['source'] ?? '';
  if (rules.grammar === 'v3') return rules.topic_prefix + source;
  const resource = v1Name(attributes['resourcetype'] ?? '');
  const event = v1Name(attributes['eventtype'] ?? '');
  const major = Number.parseInt(attributes['schemaversion'] ?? '1', 10);
  const suffix = major >= 2 ? `.v${major}` : '';
  return `${rules.topic_prefix}${v1Name(source)}_${resource}.${event}${suffix}`;
}

/** The only `type` that fits the other attributes. */
export function typeFor(
  source: string,
  resource: string,
  event: string,
  rules: ContractRules,
): string {
  return rules.grammar === 'v3'
    ? `${rules.type_prefix}${source}.${resource}.${event}`
    : `${rules.type_prefix}${resource}.${event}`;
}
