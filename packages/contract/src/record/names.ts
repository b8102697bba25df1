/** Attributes with a slot of their own. The slot numbers index `HeaderSet.values`. */
export const slotNames = [
  'specversion',
  'id',
  'source',
  'type',
  'time',
  'schemaversion',
  'resourcetype',
  'eventtype',
  'tenantid',
  'subject',
  'datacontenttype',
  'dataschema',
  'systemevent',
  'traceparent',
  'tracestate',
] as const;
export type SlotName = (typeof slotNames)[number];

export const slot = Object.fromEntries(slotNames.map((name, index) => [name, index])) as Readonly<
  Record<SlotName, number>
>;

/** The `content-type`, `traceparent` and `tracestate` headers, which carry no `ce-` prefix. */
export const contentTypeSlot = slotNames.length;
export const plainTraceParentSlot = slotNames.length + 1;
export const plainTraceStateSlot = slotNames.length + 2;
export const slotCount = slotNames.length + 3;

interface Candidate {
  readonly index: number;
  readonly bytes: Uint8Array;
}

function byLength(
  names: readonly (readonly [string, number])[],
): readonly (readonly Candidate[])[] {
  const table: Candidate[][] = Array.from({ length: 16 }, () => []);
  for (const [name, index] of names) table[name.length]?.push({ index, bytes: Buffer.from(name) });
  return table;
}

const prefixed = byLength(slotNames.map((name, index) => [name, index]));
const plain = byLength([
  ['content-type', contentTypeSlot],
  ['traceparent', plainTraceParentSlot],
  ['tracestate', plainTraceStateSlot],
]);

/** Compares bytes with a lower-case ASCII name, ignoring the case of letters. */
function sameName(key: Uint8Array, from: number, name: Uint8Array): boolean {
  for (let index = 0; index < name.length; index++) {
    const byte = key[from + index] as number;
    const wanted = name[index] as number;
    if (byte === wanted) continue;
    if (byte < 0x41 || byte > 0x5a || (byte | 0x20) !== wanted) return false;
  }
  return true;
}

function find(table: readonly (readonly Candidate[])[], key: Uint8Array, from: number): number {
  const candidates = table[key.length - from];
  if (candidates === undefined) return -1;
  for (let index = 0; index < candidates.length; index++) {
    const candidate = candidates[index] as Candidate;
    if (sameName(key, from, candidate.bytes)) return candidate.index;
  }
  return -1;
}

/** True for `ce-…` and `ce_…` in any case. */
export function isEventHeader(key: Uint8Array): boolean {
  if (key.length < 3) return false;
  const separator = key[2];
  return (
    ((key[0] as number) | 0x20) === 0x63 &&
    ((key[1] as number) | 0x20) === 0x65 &&
    (separator === 0x2d || separator === 0x5f)
  );
}

/** Slot of a `ce-` header, or -1 for an extension. */
export function eventSlot(key: Uint8Array): number {
  return find(prefixed, key, 3);
}

/** Slot of a header without prefix, or -1 when it means nothing here. */
export function plainSlot(key: Uint8Array): number {
  return find(plain, key, 0);
}

const extensionName = /^[a-z0-9][a-z0-9._-]*$/;

/** Extensions may be named more loosely than CloudEvents asks, as long as HTTP can carry the name. */
export function isExtensionName(name: string): boolean {
  return extensionName.test(name) && name !== 'data' && name !== 'data_base64';
}
