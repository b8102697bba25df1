import { isUtf8 } from 'node:buffer';
import { limits } from '../limits.ts';
import { type Quarantine, quarantine, quote } from '../verdict.ts';
import { hasControlCharacter, isTraceParent } from './formats.ts';
import {
  contentTypeSlot,
  eventSlot,
  isEventHeader,
  isExtensionName,
  plainSlot,
  plainTraceParentSlot,
  plainTraceStateSlot,
  slot,
  slotCount,
  slotNames,
} from './names.ts';

/** A header as it travels: raw bytes, in order, repeats kept. */
export type RawHeader = readonly [key: Buffer, value: Buffer];

/** The event headers of one record: last value of each, decoded. */
export interface HeaderSet {
  /** By slot (`names.ts`). */
  readonly values: readonly (string | undefined)[];
  /** UTF-8 length of each value, by slot. */
  readonly lengths: readonly number[];
  /** Bit n: the value in slot n holds a control character. */
  readonly controls: number;
  readonly extensions: readonly (readonly [name: string, value: string])[] | null;
}

function utf8Text(bytes: Buffer): string | null {
  return isUtf8(bytes) ? bytes.toString('utf8') : null;
}

function invalidUtf8(name: string): Quarantine {
  return quarantine('invalid_utf8', name, `The header for ${name} is not valid UTF-8.`);
}

// Copying a ready array is the cheapest way to a dense one.
const emptySlots = Array.from<Buffer | undefined>({ length: slotCount });
const emptyValues = Array.from<string | undefined>({ length: slotNames.length });
const zeroLengths = Array.from(slotNames, () => 0);

interface RawSet {
  readonly slots: (Buffer | undefined)[];
  readonly extensions: Map<string, Buffer> | null;
}

/** Sorts headers into slots without decoding any value, so that an overwritten one costs nothing. */
function collect(headers: readonly RawHeader[]): RawSet | Quarantine {
  const slots = emptySlots.slice();
  let extensions: Map<string, Buffer> | null = null;
  let bytes = 0;
  for (let index = 0; index < headers.length; index++) {
    const header = headers[index] as RawHeader;
    const key = header[0];
    const value = header[1];
    const prefixed = isEventHeader(key);
    const at = prefixed ? eventSlot(key) : plainSlot(key);
    if (at >= 0) slots[at] = value;
    else if (!prefixed) continue;
    else {
      const name = key.toString('latin1', 3).toLowerCase();
      if (name.length > limits.extension_name_bytes_max || !isExtensionName(name)) {
        return quarantine(
          'invalid_header_name',
          null,
          `The header ce-${quote(name).slice(1, -1)} is not a usable attribute name.`,
        );
      }
      extensions ??= new Map();
      extensions.set(name, value);
    }
    bytes += key.length + value.length;
  }
  if (bytes > limits.attributes_bytes_max || (extensions?.size ?? 0) > limits.extensions_max) {
    return quarantine(
      'headers_too_large',
      null,
      `The event headers take ${bytes} bytes with ${extensions?.size ?? 0} extensions; at most ` +
        `${limits.attributes_bytes_max} bytes and ${limits.extensions_max} extensions are allowed.`,
    );
  }
  return { slots, extensions };
}

function decodeExtensions(
  raw: Map<string, Buffer>,
): readonly (readonly [string, string])[] | Quarantine {
  const decoded: (readonly [string, string])[] = [];
  for (const [name, bytes] of raw) {
    const text = utf8Text(bytes);
    if (text === null) return invalidUtf8(name);
    decoded.push([name, text]);
  }
  return decoded;
}

/** Trace context that cannot be carried on is left out: broken tracing must not cost an event. */
function traceText(bytes: Buffer | undefined, isParent: boolean): string | undefined {
  if (bytes === undefined || bytes.length === 0) return undefined;
  if (bytes.length > limits.trace_state_bytes_max) return undefined;
  const text = bytes.toString('latin1');
  const usable = isParent ? isTraceParent(text) : /^[ -~]+$/.test(text);
  return usable ? text : undefined;
}

/** Step one of the reader: which event headers there are, and that each is text. */
export function readHeaders(headers: readonly RawHeader[]): HeaderSet | Quarantine {
  const raw = collect(headers);
  if ('verdict' in raw) return raw;
  const slots = raw.slots;
  slots[slot.datacontenttype] ??= slots[contentTypeSlot];
  const values = emptyValues.slice();
  const lengths = zeroLengths.slice();
  let controls = 0;
  for (let at = 0; at < slot.traceparent; at++) {
    const bytes = slots[at];
    if (bytes === undefined) continue;
    const length = bytes.length;
    let high = 0;
    let control = false;
    for (let index = 0; index < length; index++) {
      const byte = bytes[index] as number;
      high |= byte;
      if (byte < 0x20 || byte === 0x7f) control = true;
    }
    const text = high < 0x80 ? bytes.toString('latin1') : utf8Text(bytes);
    if (text === null) return invalidUtf8(slotNames[at] as string);
    if (control || (high >= 0x80 && hasControlCharacter(text))) controls |= 1 << at;
    values[at] = text;
    lengths[at] = length;
  }
  values[slot.traceparent] =
    traceText(slots[plainTraceParentSlot], true) ?? traceText(slots[slot.traceparent], true);
  values[slot.tracestate] =
    traceText(slots[plainTraceStateSlot], false) ?? traceText(slots[slot.tracestate], false);
  if (raw.extensions === null) return { values, lengths, controls, extensions: null };
  const extensions = decodeExtensions(raw.extensions);
  if ('verdict' in extensions) return extensions;
  return { values, lengths, controls, extensions };
}
