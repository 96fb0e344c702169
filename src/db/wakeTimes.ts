import type { Sql } from './client.js';

/**
 * When the sweep wakes a payout or a chunk that has not moved: every `wake_at` that is not null
 * comes from here. The sweep runs every five seconds, so what an outage or a dead process has left behind moves at
 * most ten seconds after everything works again.
 */
const wakeAfterMs = {
  /** Recorded or moved, and its workflow is being started or signaled: usually milliseconds. */
  step: 5_000,
  /** The rail's event is in the inbox, and its workflow is being signaled. */
  railEvent: 4_000,
  /** As a step, but one of up to a thousand whose workflows are started together. */
  handOver: 15_000,
  /** The sweep is waking it; the next sweep leaves it alone meanwhile. */
  woken: 15_000,
  /** With the rail: the workflow polls after a minute of silence and says so each time. */
  sent: 90_000,
  /** For a person, or polled once an hour: only a workflow that was terminated is noticed. */
  resting: 60 * 60_000,
} as const;

/** The value of `wake_at` for a reason, or for a time that the caller has worked out itself. */
export function wakeAfter(sql: Sql, when: keyof typeof wakeAfterMs | { readonly ms: number }) {
  const ms = typeof when === 'string' ? wakeAfterMs[when] : when.ms;
  return sql`now() + make_interval(secs => ${ms / 1000}::float8)`;
}
