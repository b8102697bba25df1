/** Finds raw JSON text inside a document that `JSON.parse` has already accepted. */

const quoteByte = 0x22;
const backslash = 0x5c;

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

function skipSpace(json: Buffer, from: number): number {
  let at = from;
  while (isSpace(json[at])) at++;
  return at;
}

function endOfString(json: Buffer, from: number): number {
  let at = from + 1;
  while (at < json.length && json[at] !== quoteByte) at += json[at] === backslash ? 2 : 1;
  return at + 1;
}

/** Index after the value that begins at `from`. */
function endOfValue(json: Buffer, from: number): number {
  let depth = 0;
  let at = from;
  while (at < json.length) {
    const byte = json[at];
    if (byte === quoteByte) {
      at = endOfString(json, at);
      if (depth === 0) return at;
      continue;
    }
    if (byte === 0x7b || byte === 0x5b) depth++;
    else if (byte === 0x7d || byte === 0x5d) {
      if (depth === 0) return at;
      depth--;
      if (depth === 0) return at + 1;
    } else if (depth === 0 && (byte === 0x2c || isSpace(byte))) return at;
    at++;
  }
  return at;
}

/** Raw text of each element of an array document. */
export function sliceElements(json: Buffer): Buffer[] {
  const elements: Buffer[] = [];
  let at = skipSpace(json, skipSpace(json, 0) + 1);
  while (at < json.length && json[at] !== 0x5d) {
    const end = endOfValue(json, at);
    elements.push(json.subarray(at, end));
    at = skipSpace(json, end);
    if (json[at] === 0x2c) at = skipSpace(json, at + 1);
  }
  return elements;
}

/** Raw text of a member of an object document; the last one when the name repeats, as `JSON.parse` has it. */
export function sliceMember(json: Buffer, name: string): Buffer | null {
  let found: Buffer | null = null;
  let at = skipSpace(json, skipSpace(json, 0) + 1);
  while (at < json.length && json[at] === quoteByte) {
    const keyEnd = endOfString(json, at);
    const key: unknown = JSON.parse(json.toString('utf8', at, keyEnd));
    const start = skipSpace(json, skipSpace(json, keyEnd) + 1);
    const end = endOfValue(json, start);
    if (key === name) found = json.subarray(start, end);
    at = skipSpace(json, end);
    if (json[at] === 0x2c) at = skipSpace(json, at + 1);
  }
  return found;
}
