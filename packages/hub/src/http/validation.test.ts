import type { HubError } from '@streaming-hub/contract';
import Type from 'typebox';
import { expect, it } from 'vitest';
import { validatorCompiler } from './validation.ts';

const closed = { additionalProperties: false };
const schema = Type.Object(
  {
    url: Type.String({ maxLength: 5 }),
    kind: Type.Optional(Type.Union([Type.Literal('a'), Type.Literal('b')])),
    word: Type.Optional(Type.Enum(['x', 'y'])),
    nested: Type.Optional(Type.Object({ n: Type.Integer({ minimum: 1 }) }, closed)),
    hold: Type.Optional(Type.Union([Type.Integer({ minimum: 0 }), Type.Null()])),
    list: Type.Optional(Type.Union([Type.Array(Type.Number(), { maxItems: 2 }), Type.Null()])),
    either: Type.Optional(Type.Union([Type.Object({ m: Type.Number() }, closed), Type.Null()])),
    headers: Type.Optional(Type.Record(Type.String(), Type.String())),
  },
  closed,
);

function errorsFor(value: unknown, httpPart = 'body') {
  const validate = validatorCompiler({ schema, method: 'POST', url: '/', httpPart });
  const result = validate(value) as { error?: HubError };
  return result.error?.errors?.map(({ field, message }) => `${field} ${message}`) ?? [];
}

it('accepts what fits', () => {
  expect(errorsFor({ url: 'a', hold: null, list: [1], headers: { 'X-A': '1' } })).toEqual([]);
});

it.each<[unknown, string[]]>([
  [5, [' must be a JSON object']],
  [{}, ['url is required and missing: give text of at most 5 characters long']],
  [
    { url: 'a', foo: 1, bar: 2 },
    [
      'foo is not known here: remove it or correct its name',
      'bar is not known here: remove it or correct its name',
    ],
  ],
  [{ url: 5 }, ['url must be text of at most 5 characters long']],
  [{ url: 'a', kind: 'c' }, ['kind must be one of "a", "b"']],
  [{ url: 'a', word: 'z' }, ['word must be one of "x", "y"']],
  [
    { url: 'a', nested: {} },
    ['nested.n is required and missing: give a whole number of at least 1'],
  ],
  [
    { url: 'a', nested: { n: 0, m: 1 } },
    [
      'nested.m is not known here: remove it or correct its name',
      'nested.n must be a whole number of at least 1',
    ],
  ],
  [{ url: 'a', hold: -1 }, ['hold must be a whole number of at least 0']],
  [{ url: 'a', hold: 'x' }, ['hold must be a whole number of at least 0 or null']],
  [{ url: 'a', list: [1, 'x'] }, ['list.1 must be a number']],
  [{ url: 'a', either: { m: 'x' } }, ['either.m must be a number']],
  [{ url: 'a', either: 4 }, ['either must be a JSON object or null']],
  [{ url: 'a', headers: { 'a/b': 1 } }, ['headers.a/b must be text']],
])('%j', (value, expected) => {
  expect(errorsFor(value)).toEqual(expected);
});

it('names every field, not only the first few', () => {
  const many = Object.fromEntries(Array.from({ length: 30 }, (_, n) => [`x${n}`, n]));
  expect(errorsFor({ url: 'a', ...many })).toHaveLength(30);
});

it('never echoes a value', () => {
  expect(JSON.stringify(errorsFor({ url: 'hunter2-hunter2' }))).not.toContain('hunter2');
});
