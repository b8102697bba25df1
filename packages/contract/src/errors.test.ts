import { Compile } from 'typebox/compile';
import { expect, test } from 'vitest';
import { errorTable, fieldError, HubError, toProblem } from './errors.ts';
import { Problem, SubscriptionCreate, SubscriptionPatch } from './schemas/index.ts';

test('every code makes a problem document of the published shape', () => {
  const check = Compile(Problem);
  for (const code of Object.keys(errorTable) as (keyof typeof errorTable)[]) {
    const problem = toProblem(new HubError(code, 'why'), '/v1/x', 'trace');
    expect(check.Check(problem)).toBe(true);
    expect(problem.status).toBe(errorTable[code].status);
  }
});

test('a field error carries its field and its cause is kept', () => {
  const cause = new Error('below');
  const error = new HubError('internal', 'why', { cause, headers: { 'retry-after': '1' } });
  expect([error.cause, error.headers]).toEqual([cause, { 'retry-after': '1' }]);
  expect(toProblem(fieldError('a.b', 'bad', 'No.'), '/', 't')).toMatchObject({
    status: 422,
    errors: [{ field: 'a.b', message: 'No.', code: 'bad' }],
  });
});

test('subscriptions refuse what they do not know', () => {
  const create = Compile(SubscriptionCreate);
  const minimal = { destination: { url: 'https://a.example' }, event_types: ['a.b'] };
  expect(create.Check(minimal)).toBe(true);
  expect(create.Check({ ...minimal, surprise: 1 })).toBe(false);
  expect(create.Check({ ...minimal, verification_state: 'active' })).toBe(false);
  expect(create.Check({ event_types: ['a.b'] })).toBe(false);
  expect(create.Check({ ...minimal, destination: { url: 'x', proxy: 'y' } })).toBe(false);
  const patch = Compile(SubscriptionPatch);
  expect(patch.Check({ enabled: false })).toBe(true);
  expect(patch.Check({})).toBe(false);
});
