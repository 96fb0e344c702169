const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;

/**
 * Pauses after each failed attempt. The first four bridge a restart or deployment of the receiver without
 * flooding it. The last attempt is 73 hours after the first, so that a weekend is bridged too.
 */
export const retryPausesMs: readonly number[] = [
  5 * second,
  30 * second,
  2 * minute,
  5 * minute,
  30 * minute,
  1 * hour,
  2 * hour,
  5 * hour,
  10 * hour,
  14 * hour,
  20 * hour,
  20 * hour,
];

/** Maximum Retry-After that is honoured; a longer one is shortened to this. */
const retryAfterMaximumMs = 24 * hour;

/**
 * Returns the milliseconds until the next attempt, or undefined after the last one. The pause has a jitter of
 * ±20 %, so that the events of an outage are not all retried at once; `random` is in [0, 1). The receiver's
 * Retry-After is honoured if it is longer.
 */
export function backoffAfter(
  attempts: number,
  random: number,
  retryAfterMs = 0,
): number | undefined {
  const pauseMs = retryPausesMs[attempts - 1];
  if (pauseMs === undefined) return undefined;
  const jitteredMs = Math.round(pauseMs * (0.8 + 0.4 * random));
  return Math.max(jitteredMs, Math.min(retryAfterMs, retryAfterMaximumMs));
}
