import {
  checkRetrySchedule,
  defaultRetrySchedule_seconds,
  parseDuration_ms,
} from '@streaming-hub/contract';
import {
  custom,
  duration,
  flag,
  formatDuration,
  localElse,
  type Parsed,
  ratio,
  whole,
  word,
} from '../setting.ts';

const second_ms = 1_000;
const hour_ms = 3_600_000;

function parseSchedule(given: string): Parsed<readonly number[]> {
  const steps = given.split(',').map((step) => {
    // Only 0 may stand without a unit: any other bare number would be a guess.
    const text = step.trim();
    if (/^\d+$/.test(text) && Number(text) !== 0) return null;
    return parseDuration_ms(text, 1);
  });
  if (steps.includes(null))
    return { ok: false, expected: 'durations with units, such as 0s,5s,5m' };
  const checked = checkRetrySchedule(steps.map((step_ms) => (step_ms ?? 0) / second_ms));
  return checked.ok
    ? { ok: true, value: checked.schedule }
    : { ok: false, expected: `a usable schedule (${checked.message})` };
}

/** Matching is done; these govern attempts and what follows a failed one. */
export const deliverySettings = {
  dispatchWorkers: whole('DISPATCH_WORKERS', {
    default: 8,
    min: 1,
    max: 1_024,
    description: 'Workers × claim batch = attempts in flight of this process.',
  }),
  dispatchClaimBatch: whole('DISPATCH_CLAIM_BATCH', {
    default: 16,
    min: 1,
    max: 1_024,
    description: 'See `DISPATCH_WORKERS`.',
  }),
  dispatchIdleInterval_ms: duration('DISPATCH_IDLE_INTERVAL_MS', {
    default: 250,
    bare_unit_ms: 1,
    min_ms: 10,
    max_ms: 60_000,
    description: 'How often an idle process looks for work that no notification announced.',
  }),
  shardLease_ms: duration('SHARD_LEASE', {
    default: 15 * second_ms,
    bare_unit_ms: second_ms,
    min_ms: 1 * second_ms,
    max_ms: 30 * second_ms,
    description:
      'How long the lanes of a process that vanished wait before another one takes them over.',
  }),
  deliveryTimeout_ms: duration('DELIVERY_TIMEOUT', {
    default: 15 * second_ms,
    min_ms: 100,
    max_ms: 30 * second_ms,
    description: 'Longest exchange with a receiver: connect, headers and body together.',
  }),
  retrySchedule_seconds: custom<readonly number[]>(
    'RETRY_SCHEDULE',
    {
      default: defaultRetrySchedule_seconds,
      description:
        'Delay before each attempt, the first included; each is drawn uniformly from zero to the step. A subscription may have its own.',
    },
    {
      accepts: 'a comma list of at most 12 durations of at most 10h, such as 0s,5s,5m',
      parse: parseSchedule,
      format: (steps) => steps.map((step) => formatDuration(step * second_ms)).join(','),
    },
  ),
  poisonThreshold: whole('POISON_THRESHOLD', {
    default: 5,
    min: 1,
    max: 100,
    description: 'Crashes during one delivery after which it is dead-lettered as poison.',
  }),
  headerPrefix: word('HEADER_PREFIX', {
    default: 'X-Lerian-',
    accepts: 'letters, digits and dashes, ending with a dash',
    pattern: /^[A-Za-z][A-Za-z0-9-]{0,62}-$/,
    description: 'What the names of delivery headers begin with.',
  }),
  allowPrivateSinks: flag('ALLOW_PRIVATE_SINKS', {
    default: localElse(true, false, String),
    description:
      'Lets deliveries go to loopback and private addresses and over plain http. Production refuses `true`.',
  }),
  breakerConsecutiveFailures: whole('BREAKER_CONSECUTIVE_FAILURES', {
    planned: true,
    default: 5,
    min: 1,
    max: 10_000,
    description: 'Failures in a row that open a breaker.',
  }),
  breakerAttemptsMin: whole('BREAKER_ATTEMPTS_MIN', {
    planned: true,
    default: 10,
    min: 1,
    max: 10_000,
    description: 'Attempts in the window before the failure ratio counts.',
  }),
  breakerFailureRatio: ratio('BREAKER_FAILURE_RATIO', {
    planned: true,
    default: 0.5,
    description: 'Share of failed attempts in the window that opens a breaker.',
  }),
  breakerWindow_ms: duration('BREAKER_WINDOW', {
    planned: true,
    default: 60 * second_ms,
    min_ms: 100,
    max_ms: hour_ms,
    description: 'Sliding window of the failure ratio.',
  }),
  breakerOpenTime_ms: duration('BREAKER_OPEN_TIME', {
    planned: true,
    default: 30 * second_ms,
    min_ms: 50,
    max_ms: hour_ms,
    description: 'How long a breaker stays open before its first probe.',
  }),
  breakerOpenTimeMax_ms: duration('BREAKER_OPEN_TIME_MAX', {
    planned: true,
    default: 300 * second_ms,
    min_ms: 50,
    max_ms: 10 * hour_ms,
    description: 'The open time doubles with every failed probe up to this.',
  }),
  autodisableEnabled: flag('AUTODISABLE_ENABLED', {
    planned: true,
    default: true,
    description: 'Disables a subscription whose receiver has failed for long.',
  }),
  autodisableFailureWindow_ms: duration('AUTODISABLE_FAILURE_WINDOW', {
    planned: true,
    default: 120 * hour_ms,
    min_ms: second_ms,
    description: 'How long failures must have lasted without one success.',
  }),
  autodisableFailureSpread_ms: duration('AUTODISABLE_FAILURE_SPREAD', {
    planned: true,
    default: 12 * hour_ms,
    description: 'How far apart the first and the last of these failures must be.',
  }),
  healthWindow_ms: duration('HEALTH_WINDOW', {
    planned: true,
    default: 720 * hour_ms,
    min_ms: 60 * second_ms,
    description: "How far back a subscription's health view looks.",
  }),
} as const;
