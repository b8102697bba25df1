/** When what happens in the demo, and how patient the hub is meanwhile. Times count from the first event. */
export interface Plan {
  readonly publishEvery_ms: number;
  /** No event is published after this; null = until Ctrl-C. */
  readonly publishUntil_ms: number | null;
  readonly outageFrom_ms: number;
  readonly outage_ms: number;
  /** The summary is drawn then; null = on Ctrl-C. */
  readonly end_ms: number | null;
  /** How much longer to wait for what has not arrived by then. */
  readonly grace_ms: number;
  /** For the receiver that goes away: long enough to outlast the outage, short enough to watch. */
  readonly outageSchedule_seconds: readonly number[];
}

/** What a receiver that fails now and then needs: quick tries, so that one sees them. */
export const flakySchedule_seconds: readonly number[] = [0, 1, 2, 3, 5, 5, 5, 5, 5, 5, 5, 5];

const longOutage_ms = 60_000;
/**
 * Fits an outage of a minute; shorter outages shrink it. Waits are drawn from 0 to the step, so that
 * 12 tries end within the minute once in a thousand times; then there is a dead letter to redrive.
 */
const longSchedule_seconds = [0, 3, 8, 15, 30, 30, 30, 30, 30, 30, 30, 30];
const shares = { publish: 0.6, outageFrom: 0.1, outage: 0.4 };

/** Divides `seconds` into publishing, an outage within it, and time for the rest to arrive. */
export function planFor(seconds: number | null): Plan {
  const end_ms = seconds === null ? null : seconds * 1_000;
  const outage_ms =
    end_ms === null ? longOutage_ms : Math.min(longOutage_ms, end_ms * shares.outage);
  const scale = outage_ms / longOutage_ms;
  return {
    publishEvery_ms: 500,
    publishUntil_ms: end_ms === null ? null : end_ms * shares.publish,
    outageFrom_ms: end_ms === null ? 10_000 : end_ms * shares.outageFrom,
    outage_ms,
    end_ms,
    grace_ms: 20_000,
    outageSchedule_seconds: longSchedule_seconds.map((step) => step * scale),
  };
}
