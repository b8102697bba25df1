import { fieldError, HubError } from '../errors.ts';
import { decodeRecord } from '../record/decode.ts';
import { encodeRecord } from '../record/encode.ts';
import { isNameSegment } from '../record/formats.ts';
import { type Attributes, type ContractRules, typeFor } from '../rules.ts';
import type { Quarantine } from '../verdict.ts';
import type { HttpContext, ParsedEvent } from './parse.ts';

interface CompletionContext extends HttpContext {
  readonly trace: Readonly<Record<string, string>>;
  /** Leads field names in a batch: `3.`. */
  readonly path: string;
}

/** Splits a type into the attributes it is made of; null when it has another shape. */
function partsOfType(
  type: string,
  source: string | undefined,
  rules: ContractRules,
): Record<string, string> | null {
  if (!type.startsWith(rules.type_prefix)) return null;
  const parts = type.slice(rules.type_prefix.length).split('.');
  if (rules.grammar === 'v1') {
    const [resourcetype, eventtype, ...rest] = parts;
    if (!resourcetype || !eventtype || rest.length > 0) return null;
    return source === undefined ? { resourcetype, eventtype } : { source, resourcetype, eventtype };
  }
  const [origin, resourcetype, eventtype, ...rest] = parts;
  if (!origin || !resourcetype || !eventtype || rest.length > 0) return null;
  return { source: origin, resourcetype, eventtype };
}

/** What type the sender should have written, for the messages below. */
function typeShape(rules: ContractRules): string {
  return `${rules.type_prefix}${rules.grammar === 'v3' ? '<source>.' : ''}<resource>.<event>`;
}

/** Fills `type` from `source`, `resourcetype` and `eventtype`, or these from `type`. */
function fillNames(attributes: Record<string, string>, path: string, rules: ContractRules): void {
  const type = attributes['type'];
  if (type) {
    const parts = partsOfType(type, attributes['source'], rules);
    if (parts === null) {
      throw fieldError(
        `${path}type`,
        'invalid_type',
        `${path}type ${JSON.stringify(type)} must have the form ${typeShape(rules)}.`,
      );
    }
    for (const [name, value] of Object.entries(parts)) attributes[name] ||= value;
  }
  for (const name of ['source', 'resourcetype', 'eventtype']) {
    if (attributes[name]) continue;
    throw fieldError(
      path + name,
      'missing_attribute',
      `${path + name} is missing; send it, or a type of the form ${typeShape(rules)}.`,
    );
  }
  const { source, resourcetype, eventtype } = attributes as Record<string, string>;
  for (const name of ['resourcetype', 'eventtype']) {
    if (isNameSegment(attributes[name] as string)) continue;
    throw fieldError(
      path + name,
      `invalid_${name}`,
      `${path + name} must be one segment of letters, digits, _ and -.`,
    );
  }
  attributes['type'] ||= typeFor(
    source as string,
    resourcetype as string,
    eventtype as string,
    rules,
  );
}

/** Says a reader's fault in the words of the HTTP API. */
function toHubError(fault: Quarantine, path: string): HubError {
  const field = fault.field === null ? null : path + fault.field;
  const detail = fault.detail.replaceAll(/\bce-(?=[a-z])/g, path);
  if (fault.reason === 'value_too_large') return new HubError('payload_too_large', detail);
  return field === null
    ? new HubError('validation_failed', detail)
    : fieldError(field, fault.reason, detail);
}

function withDefaults(event: ParsedEvent, context: CompletionContext): Record<string, string> {
  const given: Record<string, string> = {};
  for (const [name, value] of Object.entries(event.attributes)) {
    if (value !== '') given[name] = value;
  }
  const attributes: Record<string, string> = {
    specversion: '1.0',
    id: given['id'] ?? context.newId(),
    source: '',
    type: '',
    time: new Date(context.now_ms).toISOString(),
    schemaversion: '1.0.0',
    resourcetype: '',
    eventtype: '',
    tenantid: context.tenant_id,
    ...given,
  };
  return given['traceparent'] === undefined ? { ...attributes, ...context.trace } : attributes;
}

/** Fills in what follows from other attributes and checks the whole as the reader will. */
export function completeEvent(event: ParsedEvent, context: CompletionContext): ParsedEvent {
  const { path, rules } = context;
  const attributes = withDefaults(event, context);
  if (attributes['tenantid'] !== context.tenant_id) {
    const message = `${path}tenantid names another tenant; leave it out, or use that tenant's credentials.`;
    throw new HubError('tenant_mismatch', message, {
      errors: [{ field: `${path}tenantid`, message, code: 'tenant_mismatch' }],
    });
  }
  if (attributes['systemevent'] === 'true') {
    throw fieldError(
      `${path}systemevent`,
      'reserved_attribute',
      `${path}systemevent marks the platform's own events and cannot be published; leave it out.`,
    );
  }
  fillNames(attributes, path, rules);
  const verdict = decodeRecord(encodeRecord(attributes, event.body, rules), rules, context.now_ms);
  switch (verdict.verdict) {
    case 'accept':
      return { attributes: verdict.event.attributes as Attributes, body: event.body };
    case 'quarantine':
      throw toHubError(verdict, path);
    case 'drop':
      throw new HubError(
        'forbidden',
        'This tenant is not on the roster, so nothing would be delivered.',
      );
    default:
      return verdict satisfies never;
  }
}
