const uuid_hex = /^[0-9a-f]{32}$/;

/** An opaque page cursor that names the last row shown. */
export function encodeCursor(id: string): string {
  return Buffer.from(id.replaceAll('-', ''), 'hex').toString('base64url');
}

/** The id inside a cursor; null when we did not make it. */
export function decodeCursor(cursor: string): string | null {
  const hex = Buffer.from(cursor, 'base64url').toString('hex');
  if (!uuid_hex.test(hex) || encodeCursor(hex) !== cursor) return null;
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}
