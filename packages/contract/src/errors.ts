/** Every error the HTTP API answers with. Documents and clients are tested against this table. */
export const errorTable = {
  malformed_json: { status: 400, title: 'The body is not valid JSON', retryable: false },
  malformed_request: { status: 400, title: 'The request cannot be understood', retryable: false },
  invalid_cursor: { status: 400, title: 'The cursor is not one of ours', retryable: false },
  unauthorized: { status: 401, title: 'Credentials are missing or not valid', retryable: false },
  forbidden: { status: 403, title: 'The credentials do not allow this', retryable: false },
  tenant_mismatch: { status: 403, title: 'The event names another tenant', retryable: false },
  not_found: { status: 404, title: 'There is no such resource', retryable: false },
  method_not_allowed: { status: 405, title: 'The method is not supported here', retryable: false },
  request_timeout: { status: 408, title: 'The request took too long to arrive', retryable: true },
  conflict: {
    status: 409,
    title: 'The request conflicts with the current state',
    retryable: false,
  },
  idempotency_in_flight: {
    status: 409,
    title: 'A request with this idempotency key is still running',
    retryable: true,
  },
  payload_too_large: { status: 413, title: 'The body is too large', retryable: false },
  unsupported_media_type: {
    status: 415,
    title: 'The content type is not supported',
    retryable: false,
  },
  validation_failed: { status: 422, title: 'A field is not usable', retryable: false },
  destination_refused: {
    status: 422,
    title: 'The destination address is not allowed',
    retryable: false,
  },
  idempotency_key_reused: {
    status: 422,
    title: 'The idempotency key belongs to another request',
    retryable: false,
  },
  rate_limited: { status: 429, title: 'Too many requests', retryable: true },
  internal: { status: 500, title: 'The hub failed', retryable: true },
  not_implemented: { status: 501, title: 'This is not available here', retryable: false },
  unavailable: { status: 503, title: 'The hub cannot serve this right now', retryable: true },
  stream_unavailable: { status: 503, title: 'The stream cannot be reached', retryable: true },
  database_unavailable: { status: 503, title: 'The database cannot be reached', retryable: true },
} as const satisfies Record<string, ErrorEntry>;

export interface ErrorEntry {
  readonly status: number;
  readonly title: string;
  /** True when the same request may succeed later. */
  readonly retryable: boolean;
}

export type ErrorCode = keyof typeof errorTable;

/** One field at fault. `field` is a dotted path into the request. */
export interface FieldError {
  readonly field: string;
  readonly message: string;
  readonly code: string;
}

export interface HubErrorOptions extends ErrorOptions {
  readonly errors?: readonly FieldError[];
  /** Extra answer headers, such as `retry-after`. */
  readonly headers?: Readonly<Record<string, string>>;
}

/** An error the API can answer with. `detail` is written for the caller and holds no secrets. */
export class HubError extends Error {
  readonly code: ErrorCode;
  readonly detail: string;
  readonly errors?: readonly FieldError[];
  readonly headers?: Readonly<Record<string, string>>;

  constructor(code: ErrorCode, detail: string, options: HubErrorOptions = {}) {
    super(detail, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'HubError';
    this.code = code;
    this.detail = detail;
    if (options.errors !== undefined) this.errors = options.errors;
    if (options.headers !== undefined) this.headers = options.headers;
  }

  get status(): number {
    return errorTable[this.code].status;
  }
}

/** An RFC 9457 problem document. */
export interface ProblemDocument {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  readonly instance: string;
  readonly code: ErrorCode;
  readonly trace_id: string;
  readonly retryable: boolean;
  readonly errors?: readonly FieldError[];
}

export function toProblem(error: HubError, instance: string, trace_id: string): ProblemDocument {
  const entry = errorTable[error.code];
  return {
    type: `urn:streaming-hub:problem:${error.code}`,
    title: entry.title,
    status: entry.status,
    detail: error.detail,
    instance,
    code: error.code,
    trace_id,
    retryable: entry.retryable,
    ...(error.errors === undefined ? {} : { errors: error.errors }),
  };
}

/** A 422 for one field: what is wrong, and what to do about it. */
export function fieldError(field: string, code: string, message: string): HubError {
  return new HubError('validation_failed', message, { errors: [{ field, message, code }] });
}
