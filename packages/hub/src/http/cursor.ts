import { HubError } from '@streaming-hub/contract';

/**
 * Opaque page cursors: which list they belong to and whole numbers that name the last row shown.
 * They hold nothing secret and are checked, so that one list's cursor cannot be used on another.
 */
export function encodeCursor(list: string, numbers: readonly number[]): string {
  return Buffer.from([list, ...numbers].join(':')).toString('base64url');
}

/** @throws HubError `invalid_cursor` for anything that `encodeCursor` did not make for this list. */
export function decodeCursor<N extends number>(
  list: string,
  cursor: string,
  count: N,
): N extends 1 ? [number] : N extends 3 ? [number, number, number] : number[] {
  const [name, ...texts] = Buffer.from(cursor, 'base64url').toString('latin1').split(':');
  const numbers = texts.map((text) => (/^\d{1,16}$/.test(text) ? Number(text) : Number.NaN));
  const fits =
    name === list &&
    numbers.length === count &&
    numbers.every(Number.isSafeInteger) &&
    encodeCursor(list, numbers) === cursor;
  if (!fits) {
    throw new HubError(
      'invalid_cursor',
      'Take the cursor from next_cursor of this same list, or leave it out to begin anew.',
    );
  }
  return numbers as never;
}
