/**
 * The client library's errors are trees (`errors[]`, `cause`); these helpers look through all
 * levels and say in one sentence what happened.
 */

/** Thrown where retrying cannot help: the cluster refuses the credentials or the way of connecting. */
export class KafkaAccessError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'KafkaAccessError';
  }
}

/** A fault of the connection to Kafka, in a sentence; the original is its `cause`. */
export class KafkaFault extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'KafkaFault';
  }
}

const DEPTH_max = 10;

/** Every error in the tree, outermost first. */
export function* errorTree(error: unknown, depth = 0): Generator<Error> {
  if (!(error instanceof Error) || depth > DEPTH_max) return;
  yield error;
  if (error instanceof AggregateError) {
    for (const inner of error.errors) yield* errorTree(inner, depth + 1);
  }
  yield* errorTree(error.cause, depth + 1);
}

/** Kafka's own error names (`UNKNOWN_MEMBER_ID` …) anywhere in the tree. */
export function kafkaErrorNames(error: unknown): Set<string> {
  const names = new Set<string>();
  for (const one of errorTree(error)) {
    if ('apiId' in one && typeof one.apiId === 'string') names.add(one.apiId);
  }
  return names;
}

/** The decoded response that came with an error: other partitions in it may well have succeeded. */
export function responseOf<T>(error: unknown): T | null {
  for (const one of errorTree(error)) {
    if ('response' in one && one.response !== undefined) return one.response as T;
  }
  return null;
}

/** Our own sentence where there is one, else the innermost message with the detail that Kafka sent. */
export function rootMessage(error: unknown): string {
  let last: Error | null = null;
  for (const one of errorTree(error)) {
    if (one instanceof KafkaFault || one instanceof KafkaAccessError) return one.message;
    last = one;
  }
  if (last === null) return String(error);
  const sent = 'serverErrorMessage' in last ? last.serverErrorMessage : null;
  const detail = typeof sent === 'string' && sent !== '' ? ` (${sent})` : '';
  const name = 'apiId' in last ? `${String(last.apiId)}: ` : '';
  return `${name}${last.message}${detail}`;
}

export function fault(what: string, error: unknown): KafkaFault {
  if (error === null) return new KafkaFault(what);
  return new KafkaFault(`${what}: ${rootMessage(error)}`, { cause: error });
}
