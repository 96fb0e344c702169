import { transaction } from '../db/client.js';
import { postponeWaiting } from '../db/payouts.js';
import type { WakeablePayout } from '../domain/payout.js';
import { wakePayouts } from '../temporal/workflowCalls.js';
import type { WakingDeps } from './deps.js';

/**
 * Wakes the workflows of payouts that are overdue, or that something else has moved: these workflows
 * wait only for this. Returns how many could not be woken; their rows stay due for the sweep.
 */
export async function wakeOwn(
  { database, temporal }: WakingDeps,
  payouts: readonly WakeablePayout[],
): Promise<number> {
  if (payouts.length === 0) return 0;
  const failures = await wakePayouts(temporal, payouts);
  const failed = new Set(failures.map(({ id }) => id));
  const woken = payouts.flatMap(({ id }) => (failed.has(id) ? [] : [id]));
  await transaction(database, (sql) => postponeWaiting(sql, woken));
  return failures.length;
}
