import { limits } from '../limits.ts';
import { type Attributes, type ContractRules, typeFor } from '../rules.ts';
import { type Quarantine, quarantine, quote, type Verdict } from '../verdict.ts';
import {
  hasControlCharacter,
  isNameSegment,
  isRfc3339,
  isSourceSegment,
  semverMajor,
  uuidV7Time_ms,
} from './formats.ts';
import { type HeaderSet, type RawHeader, readHeaders } from './headers.ts';
import { type SlotName, slot, slotNames } from './names.ts';

export interface WireRecord {
  readonly topic: string;
  readonly headers: readonly RawHeader[];
  readonly value: Buffer | null;
}

const systemEvent: Verdict = { verdict: 'drop', reason: 'system_event' };
const unknownTenant: Verdict = { verdict: 'drop', reason: 'unknown_tenant' };

/** Required of every event, in the order of the checks; the tenant has a check of its own, last. */
const required: readonly SlotName[] = [
  'specversion',
  'id',
  'source',
  'type',
  'time',
  'schemaversion',
  'resourcetype',
  'eventtype',
];
const requiredSlots = required.map((name) => slot[name]);

function missingHeaders(headers: HeaderSet): Quarantine {
  const missing = required.filter((name) => !headers.values[slot[name]]);
  const structured = headers.values[slot.datacontenttype]?.startsWith('application/cloudevents');
  return quarantine(
    'missing_header',
    missing.length === 1 ? (missing[0] as string) : null,
    `Missing or empty: ${missing.map((name) => `ce-${name}`).join(', ')}.${
      structured
        ? ' Structured mode is not read from the stream; send the attributes as headers.'
        : ''
    }`,
  );
}

/** Length and characters of one value; null when it is fine or absent. */
function checkText(headers: HeaderSet, at: number, bytes_max: number): Quarantine | null {
  if ((headers.lengths[at] as number) > bytes_max) {
    const name = slotNames[at] as string;
    return quarantine(
      'header_too_long',
      name,
      `ce-${name} has ${headers.lengths[at]} bytes; at most ${bytes_max} are allowed.`,
    );
  }
  if ((headers.controls & (1 << at)) === 0) return null;
  const name = slotNames[at] as string;
  return quarantine('control_character', name, `ce-${name} holds a control character.`);
}

function checkId(headers: HeaderSet, rules: ContractRules, now_ms: number): Quarantine | null {
  const fault = checkText(headers, slot.id, limits.id_bytes_max);
  if (fault !== null) return fault;
  const id = headers.values[slot.id] as string;
  const time_ms = uuidV7Time_ms(id);
  if (time_ms < 0) {
    return quarantine('id_not_uuidv7', 'id', `ce-id ${quote(id)} is not a UUIDv7.`);
  }
  if (time_ms <= now_ms + rules.id_future_max_ms) return null;
  return quarantine(
    'id_time_out_of_range',
    'id',
    `The time inside ce-id ${id} lies ${Math.round((time_ms - now_ms) / 3_600_000)} h ahead; ` +
      `at most ${Math.round(rules.id_future_max_ms / 3_600_000)} h are allowed.`,
  );
}

function checkSource(headers: HeaderSet, rules: ContractRules): Quarantine | null {
  const v3 = rules.grammar === 'v3';
  const fault = checkText(
    headers,
    slot.source,
    v3 ? limits.source_bytes_max : limits.v1_source_bytes_max,
  );
  if (fault !== null || !v3) return fault;
  const source = headers.values[slot.source] as string;
  if (isSourceSegment(source)) return null;
  return quarantine(
    'invalid_source',
    'source',
    `ce-source ${quote(source)} must be one lower-case segment of letters, digits, _ and -.`,
  );
}

function checkType(headers: HeaderSet, rules: ContractRules): Quarantine | null {
  const { values } = headers;
  const wanted = typeFor(
    values[slot.source] as string,
    values[slot.resourcetype] as string,
    values[slot.eventtype] as string,
    rules,
  );
  // Equal to a value made of checked parts needs no further check of its own.
  if (values[slot.type] === wanted) return null;
  const fault = checkText(headers, slot.type, limits.type_bytes_max);
  if (fault !== null) return fault;
  return quarantine(
    'type_mismatch',
    'type',
    `ce-type is ${quote(values[slot.type] as string)}, but the other headers make it ${quote(wanted)}.`,
  );
}

function checkTime(headers: HeaderSet): Quarantine | null {
  const fault = checkText(headers, slot.time, limits.time_bytes_max);
  if (fault !== null) return fault;
  const time = headers.values[slot.time] as string;
  if (isRfc3339(time)) return null;
  return quarantine('invalid_time', 'time', `ce-time ${quote(time)} is not an RFC 3339 time.`);
}

function checkSegment(
  headers: HeaderSet,
  name: 'resourcetype' | 'eventtype',
  bytes_max: number,
): Quarantine | null {
  const fault = checkText(headers, slot[name], bytes_max);
  if (fault !== null) return fault;
  const text = headers.values[slot[name]] as string;
  if (isNameSegment(text)) return null;
  return quarantine(
    `invalid_${name}`,
    name,
    `ce-${name} ${quote(text)} must be one segment of letters, digits, _ and -.`,
  );
}

function checkSpecVersion(headers: HeaderSet): Quarantine | null {
  const version = headers.values[slot.specversion] as string;
  if (version === '1.0') return null;
  return quarantine(
    'unsupported_specversion',
    'specversion',
    `ce-specversion is ${quote(version)}; only 1.0 is supported.`,
  );
}

function checkExtensions(headers: HeaderSet): Quarantine | null {
  if (headers.extensions === null) return null;
  for (const [name, value] of headers.extensions) {
    if (hasControlCharacter(value)) {
      return quarantine('control_character', name, `ce-${name} holds a control character.`);
    }
  }
  return null;
}

function checkOptional(headers: HeaderSet): Quarantine | null {
  return (
    checkText(headers, slot.subject, limits.subject_bytes_max) ??
    checkText(headers, slot.datacontenttype, limits.content_type_bytes_max) ??
    checkText(headers, slot.dataschema, limits.data_schema_bytes_max) ??
    checkText(headers, slot.systemevent, limits.subject_bytes_max) ??
    checkExtensions(headers)
  );
}

function checkBody(value: Buffer | null): Quarantine | null {
  if (value === null || value.length <= limits.value_bytes_max) return null;
  return quarantine(
    'value_too_large',
    null,
    `The value has ${value.length} bytes; at most ${limits.value_bytes_max} are allowed.`,
  );
}

function checkTenant(headers: HeaderSet): Quarantine | null {
  const tenant = headers.values[slot.tenantid];
  if (tenant === undefined || tenant.trim() === '') {
    return quarantine(
      'missing_tenant',
      'tenantid',
      'ce-tenantid is missing or empty; only system events have no tenant.',
    );
  }
  return checkText(headers, slot.tenantid, limits.tenant_bytes_max);
}

function attributesOf(headers: HeaderSet, id: string): Attributes {
  const { values } = headers;
  const attributes: Record<string, string> = {
    specversion: values[slot.specversion] as string,
    id,
    source: values[slot.source] as string,
    type: values[slot.type] as string,
    time: values[slot.time] as string,
    schemaversion: values[slot.schemaversion] as string,
    resourcetype: values[slot.resourcetype] as string,
    eventtype: values[slot.eventtype] as string,
    tenantid: values[slot.tenantid] as string,
  };
  for (let at = slot.subject; at < slotNames.length; at++) {
    const value = values[at];
    if (value !== undefined && value !== '') attributes[slotNames[at] as string] = value;
  }
  if (headers.extensions !== null) {
    for (const [name, value] of headers.extensions) attributes[name] = value;
  }
  return attributes;
}

/**
 * Decides what becomes of a record: accept, drop or quarantine. Never throws and never parses the
 * value. Order: headers are text → system event → required headers → each value → tenant.
 */
export function decodeRecord(record: WireRecord, rules: ContractRules, now_ms: number): Verdict {
  const headers = readHeaders(record.headers);
  if ('verdict' in headers) return headers;
  const { values } = headers;
  if (values[slot.systemevent] === 'true') return systemEvent;
  for (let index = 0; index < requiredSlots.length; index++) {
    if (!values[requiredSlots[index] as number]) return missingHeaders(headers);
  }
  const version = values[slot.schemaversion] as string;
  const schema_major = semverMajor(version);
  const fault =
    checkSpecVersion(headers) ??
    checkId(headers, rules, now_ms) ??
    checkSource(headers, rules) ??
    checkType(headers, rules) ??
    checkTime(headers) ??
    checkText(headers, slot.schemaversion, limits.schema_version_bytes_max) ??
    (schema_major >= 0
      ? null
      : quarantine(
          'invalid_schemaversion',
          'schemaversion',
          `ce-schemaversion ${quote(version)} is not a semantic version.`,
        )) ??
    checkSegment(headers, 'resourcetype', limits.resource_bytes_max) ??
    checkSegment(headers, 'eventtype', limits.event_bytes_max) ??
    checkOptional(headers) ??
    checkBody(record.value) ??
    checkTenant(headers);
  if (fault !== null) return fault;
  const tenant_id = values[slot.tenantid] as string;
  if (rules.grammar === 'v1' && rules.tenants !== null && !rules.tenants.has(tenant_id)) {
    return unknownTenant;
  }
  const id = (values[slot.id] as string).toLowerCase();
  const resource = values[slot.resourcetype] as string;
  const event = values[slot.eventtype] as string;
  return {
    verdict: 'accept',
    event: {
      tenant_id,
      id,
      origin: values[slot.source] as string,
      resource,
      event,
      event_type: `${resource}.${event}`,
      schema_major,
      attributes: attributesOf(headers, id),
    },
  };
}
