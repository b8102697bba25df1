/**
 * Postgres array literals. Built by hand because `pg` escapes every element of every array,
 * numbers too, which costs more than all the rest of a batch.
 */

/** For integers and uuids: elements that never need quotes. */
export function plainArray(items: readonly (number | string)[]): string {
  return `{${items.join(',')}}`;
}

const needsQuotes = /[^A-Za-z0-9._:/-]/;
const needsEscape = /["\\]/g;

function element(text: string): string {
  // Quoted where anything but the most harmless characters occurs, when empty, and for the word null.
  if (text !== '' && !needsQuotes.test(text) && text.toLowerCase() !== 'null') return text;
  return `"${text.replace(needsEscape, '\\$&')}"`;
}

/** For text. The caller keeps U+0000 out: Postgres has no text with it and refuses the statement. */
export function textArray(items: readonly string[]): string {
  return `{${items.map(element).join(',')}}`;
}
