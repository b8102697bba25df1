import pg from 'pg';

const int8_oid = 20;
const int8_array_oid = 1016;

/** A number when a double holds it exactly, else a bigint. Our sequence numbers (µs since 1970) always fit. */
function parseInt8(text: string): number | bigint {
  const value = Number(text);
  return Number.isSafeInteger(value) ? value : BigInt(text);
}

// pg's typings list the oids of scalars only.
const arrayParser: unknown = pg.types.getTypeParser(
  int8_array_oid as number as typeof pg.types.builtins.INT8,
  'text',
);
const parseTextArray = arrayParser as (text: string) => (string | null)[];

function parseInt8Array(text: string): (number | bigint | null)[] {
  return parseTextArray(text).map((item) => (item === null ? null : parseInt8(item)));
}

/** pg's parsers, except that `bigint` and `bigint[]` come as numbers and not as strings. */
export const typeParsers: pg.CustomTypesConfig = {
  getTypeParser: ((oid: number, format?: 'text' | 'binary') => {
    if (format !== 'binary') {
      if (oid === int8_oid) return parseInt8;
      if (oid === int8_array_oid) return parseInt8Array;
    }
    return pg.types.getTypeParser(oid, format as 'text');
  }) as pg.CustomTypesConfig['getTypeParser'],
};
