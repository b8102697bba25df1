import { uuidv7 } from 'uuidv7';
import { plainArray, textArray } from './arrays.ts';
import { headersJson } from './headers.ts';
import type { SortedBatch } from './sort.ts';

const detail_characters_max = 1000;

/** Appends texts and bodies to one buffer and remembers where they begin (from 1, as SQL counts). */
class Blob {
  readonly #buffer: Buffer;
  #used = 0;

  constructor(bytes_max: number) {
    this.#buffer = Buffer.allocUnsafe(bytes_max);
  }

  get at(): number {
    return this.#used + 1;
  }

  /** Returns the text's length in bytes. */
  text(text: string): number {
    const length = this.#buffer.write(text, this.#used);
    this.#used += length;
    return length;
  }

  /** Returns the length, -1 for null. */
  bytes(bytes: Buffer | null): number {
    if (bytes === null) return -1;
    this.#used += bytes.copy(this.#buffer, this.#used);
    return bytes.length;
  }

  done(): Buffer {
    return this.#buffer.subarray(0, this.#used);
  }
}

const noZero = (text: string) => text.slice(0, detail_characters_max).replaceAll('\0', '\\0');

/** The last seventeen and five of the statement's parameters: blob, keys and events, then quarantine. */
export function batchParameters(batch: SortedBatch): unknown[] {
  const attributes = batch.events.map(({ event }) => JSON.stringify(event.attributes));
  const headers = batch.quarantined.map(({ record }) => headersJson(record.headers));
  const blob = new Blob(bytesOf(batch, attributes, headers));
  return [
    ...eventParameters(batch, attributes, blob),
    ...quarantineParameters(batch, headers, blob),
    blob.done(),
  ];
}

function bytesOf(
  batch: SortedBatch,
  attributes: readonly string[],
  headers: readonly string[],
): number {
  let bytes = 0;
  for (const text of attributes) bytes += Buffer.byteLength(text);
  for (const text of headers) bytes += Buffer.byteLength(text);
  for (const { body } of batch.events) bytes += body?.length ?? 0;
  for (const { record } of batch.quarantined) bytes += record.value?.length ?? 0;
  return bytes;
}

/** What matching asks about is the same for many events of a batch, so it travels once. */
function eventParameters(batch: SortedBatch, attributes: readonly string[], blob: Blob): string[] {
  const keys = new Map<string, number>();
  const tenants: string[] = [];
  const origins: string[] = [];
  const types: string[] = [];
  const wildcards: string[] = [];
  const majors: number[] = [];
  const ids: string[] = [];
  const eventKeys: number[] = [];
  const starts: number[] = [];
  const attributeBytes: number[] = [];
  const bodyBytes: number[] = [];
  for (const [index, { event, body }] of batch.events.entries()) {
    const name = `${event.tenant_id}\n${event.origin}\n${event.event_type}\n${event.schema_major}`;
    let key = keys.get(name);
    if (key === undefined) {
      tenants.push(event.tenant_id);
      origins.push(event.origin);
      types.push(event.event_type);
      wildcards.push(`${event.resource}.*`);
      majors.push(event.schema_major);
      key = tenants.length;
      keys.set(name, key);
    }
    ids.push(event.id);
    eventKeys.push(key);
    starts.push(blob.at);
    attributeBytes.push(blob.text(attributes[index] ?? '{}'));
    bodyBytes.push(blob.bytes(body));
  }
  return [
    textArray(tenants),
    textArray(origins),
    textArray(types),
    textArray(wildcards),
    plainArray(majors),
    plainArray(ids),
    plainArray(eventKeys),
    plainArray(starts),
    plainArray(attributeBytes),
    plainArray(bodyBytes),
  ];
}

function quarantineParameters(
  batch: SortedBatch,
  headers: readonly string[],
  blob: Blob,
): string[] {
  const starts: number[] = [];
  const headerBytes: number[] = [];
  const valueBytes: number[] = [];
  for (const [index, { record }] of batch.quarantined.entries()) {
    starts.push(blob.at);
    headerBytes.push(blob.text(headers[index] ?? '[]'));
    valueBytes.push(blob.bytes(record.value));
  }
  return [
    plainArray(batch.quarantined.map(() => uuidv7())),
    plainArray(batch.quarantined.map(({ record }) => record.offset)),
    textArray(batch.quarantined.map(({ reason }) => noZero(reason))),
    textArray(batch.quarantined.map(({ detail }) => noZero(detail))),
    plainArray(starts),
    plainArray(headerBytes),
    plainArray(valueBytes),
  ];
}
