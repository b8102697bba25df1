/** Kafka's variable-length integers: base 128, least group first; the signed kind is zigzag-coded. */

/** Bytes of an unsigned varint. Values are safe integers. */
export function unsignedSize(value: number): number {
  let size = 1;
  for (let rest = value; rest >= 128; rest = Math.floor(rest / 128)) size += 1;
  return size;
}

/** Safe integers of any sign become non-negative ones. Arithmetic, as shifts would cut to 32 bits. */
export function zigzag(value: number): number {
  return value >= 0 ? value * 2 : -value * 2 - 1;
}

export function signedSize(value: number): number {
  return unsignedSize(zigzag(value));
}

/** Writes and returns the position behind it. */
export function writeUnsigned(target: Buffer, at: number, value: number): number {
  let position = at;
  let rest = value;
  while (rest >= 128) {
    target[position] = (rest % 128) + 128;
    rest = Math.floor(rest / 128);
    position += 1;
  }
  target[position] = rest;
  return position + 1;
}

export function writeSigned(target: Buffer, at: number, value: number): number {
  return writeUnsigned(target, at, zigzag(value));
}

/** Reads numbers and byte strings from one buffer, moving forward. */
export class ByteReader {
  readonly bytes: Buffer;
  position = 0;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
  }

  get remaining(): number {
    return this.bytes.length - this.position;
  }

  int8(): number {
    const value = this.bytes.readInt8(this.position);
    this.position += 1;
    return value;
  }

  int16(): number {
    const value = this.bytes.readInt16BE(this.position);
    this.position += 2;
    return value;
  }

  int32(): number {
    const value = this.bytes.readInt32BE(this.position);
    this.position += 4;
    return value;
  }

  /** 64 bit as a number: offsets, times and producer ids stay far below 2^53. */
  int64(): number {
    const high = this.bytes.readInt32BE(this.position);
    const low = this.bytes.readUInt32BE(this.position + 4);
    this.position += 8;
    return high * 4_294_967_296 + low;
  }

  unsigned(): number {
    const { bytes } = this;
    let byte = bytes[this.position++] as number;
    if (byte < 128) return byte;
    let value = byte - 128;
    let scale = 128;
    for (;;) {
      if (this.position >= bytes.length) throw new RangeError('a Kafka response ends too early');
      byte = bytes[this.position++] as number;
      if (byte < 128) return value + byte * scale;
      value += (byte - 128) * scale;
      scale *= 128;
    }
  }

  signed(): number {
    const value = this.unsigned();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }

  /** A view, not a copy. */
  take(length: number): Buffer {
    const value = this.bytes.subarray(this.position, this.position + length);
    this.position += length;
    return value;
  }

  /** A byte string with signed length in front; -1 stands for null. */
  nullableBytes(): Buffer | null {
    const length = this.signed();
    return length < 0 ? null : this.take(length);
  }

  /** The same; where the bytes are those of `known` it is `known` that comes back, which costs no new view. */
  nullableBytesLike(known: Buffer | undefined): Buffer | null {
    const length = this.signed();
    if (length < 0) return null;
    if (known === undefined || known.length !== length) return this.take(length);
    const { bytes, position } = this;
    for (let index = 0; index < length; index += 1) {
      if (bytes[position + index] !== known[index]) return this.take(length);
    }
    this.position += length;
    return known;
  }

  compactString(): string {
    const length = this.unsigned() - 1;
    return length <= 0 ? '' : this.take(length).toString('utf8');
  }

  /** Length of a compact array; null counts as empty. */
  compactLength(): number {
    return Math.max(0, this.unsigned() - 1);
  }

  skipTags(): void {
    const count = this.unsigned();
    for (let tag = 0; tag < count; tag += 1) {
      this.unsigned();
      const size = this.unsigned();
      this.position += size;
    }
  }
}
