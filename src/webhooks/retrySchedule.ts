const second = 1_000;
const minute = 60 * second;
const hour = 60 * minute;

/**
 * Pauses after each failed attempt. The first four outlast a restart or a deployment of the receiver
 * without a flood; with the last attempt, 73 hours after the first, a weekend is over as well.
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

/** A receiver may ask for patience, but not for ever. */
const retryAfterMaximumMs = 24 * hour;

/**
 * Milliseconds until the next attempt, or undefined after the last one. A fifth is left
 * to chance, so that the events of an outage do not come back all at once; `random` is in
 * [0, 1). A Retry-After of the receiver is honoured where it asks for more.
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
