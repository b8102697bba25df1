import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseDuration_ms } from './durations.ts';
import {
  checkRetrySchedule,
  defaultRetrySchedule_seconds,
  parseRetrySchedule,
  retryDelay_seconds,
} from './retry.ts';

test.each([
  ['250ms', 250],
  ['5s', 5000],
  ['5m', 300_000],
  ['2h', 7_200_000],
  ['1h30m', 5_400_000],
  ['1.5s', 1500],
  ['300', 300_000],
  ['0', 0],
  [' 5s ', 5000],
  ['', null],
  ['5', 5000],
  ['-5s', null],
  ['5d', null],
  ['5 s', null],
  ['s', null],
  ['1e3', null],
  ['Infinity', null],
  ['9'.repeat(30), null],
])('%j lasts %s ms', (text, wanted) => {
  expect(parseDuration_ms(text, 1000)).toBe(wanted);
});

describe('schedules', () => {
  test('the default is valid and lasts 27.6 h', () => {
    expect(checkRetrySchedule(defaultRetrySchedule_seconds)).toMatchObject({ ok: true });
    expect(defaultRetrySchedule_seconds.reduce((sum, step) => sum + step)).toBe(99_305);
  });

  test.each([[[0]], [[0, 36_000]], [[0.5, 1]], [Array.from({ length: 12 }, () => 1)]])(
    '%j is accepted',
    (schedule) => {
      expect(checkRetrySchedule(schedule)).toEqual({ ok: true, schedule });
    },
  );

  test.each([
    [null],
    ['0,5'],
    [[]],
    [Array.from({ length: 13 }, () => 1)],
    [[36_001]],
    [[-1]],
    [['5']],
    [[Number.NaN]],
    [[Number.POSITIVE_INFINITY]],
    [{ length: 1, 0: 5 }],
  ])('%j is refused', (schedule) => {
    const check = checkRetrySchedule(schedule);
    expect(check).toMatchObject({ ok: false, message: expect.any(String) });
  });

  test('text form', () => {
    expect(parseRetrySchedule('0s, 5s,5m')).toEqual({ ok: true, schedule: [0, 5, 300] });
    expect(parseRetrySchedule('0s,soon')).toMatchObject({ ok: false });
    expect(parseRetrySchedule('')).toMatchObject({ ok: false });
    expect(parseRetrySchedule('11h')).toMatchObject({ ok: false });
  });

  test('delays stay within the step and end with the schedule', () => {
    const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
    fc.assert(
      fc.property(fc.nat(11), random, (made, drawn) => {
        const delay = retryDelay_seconds(defaultRetrySchedule_seconds, made, () => drawn);
        const step = defaultRetrySchedule_seconds[made];
        if (step === undefined) expect(delay).toBeNull();
        else expect(delay).toBe(step * drawn);
      }),
    );
  });
});
