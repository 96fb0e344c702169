import type { Sql } from './client.js';

/**
 * Times after which the sweep wakes a payout or chunk that has not moved. Every `wake_at` that is not null
 * comes from here, or is that of `step` in a function of the database. While a submission or a poll is
 * retried, it is the time of the next attempt and a margin (activities/submission.ts). The sweep runs every five
 * seconds (temporal/schedules.ts), so work whose workflow could not be started or signaled continues at most
 * ten seconds after everything works again. Workflows that run continue by themselves: the longer times, and
 * the lease of a chunk (activities/chunk.ts), matter only if Temporal has lost them.
 */
const wakeAfterMs = {
  /** Stored or moved, and its workflow is being started or signaled, which usually takes milliseconds. */
  step: 5_000,
  /** The rail's event is in the inbox, and its workflow is being signaled. */
  railEvent: 4_000,
  /** Like `step`, but one of up to a thousand payouts whose workflows are started together. */
  handOver: 15_000,
  /** Being woken by the sweep. Keeps the next sweep from waking it as well. */
  woken: 15_000,
  /** Accepted by the rail. The workflow polls after a minute of silence and postpones this each time. */
  sent: 90_000,
  /** Waiting for an operator, or polled hourly. Waking only matters if the workflow was terminated. */
  resting: 60 * 60_000,
} as const;

/** Returns the value of `wake_at` for a reason, or for a time that the caller has computed. */
export function wakeAfter(sql: Sql, when: keyof typeof wakeAfterMs | { readonly ms: number }) {
  const ms = typeof when === 'string' ? wakeAfterMs[when] : when.ms;
  return sql`now() + make_interval(secs => ${ms / 1000}::float8)`;
}
