import type { Sql } from '../db/client.js';
import { type LockedPayout, lockPayouts, makeDue, movePayouts } from '../db/payouts.js';
import { cancelLost } from '../db/submissions.js';
import type { FactRules } from '../domain/factEffect.js';
import { hasConflictingReports, type WakeablePayout } from '../domain/payout.js';
import { undecidedCancellation } from '../domain/progress.js';
import { announce } from './announce.js';
import { applyFacts } from './applyFacts.js';
import type { Announcement } from './deps.js';

/** A canceled payout. `own` is set if it has its own workflow, which then has to be woken. */
export type Canceled = Announcement & { readonly own: WakeablePayout | null };

const withdrawn = { kind: 'withdrawn' } as const;

/**
 * Cancels the payouts that were never submitted to a rail and on which it has not reported, whichever workflow
 * drives them, and releases their holds. A payout that may have been submitted in a period the database has lost
 * must first be voided by its rail. The caller then wakes the payouts that have their own workflows.
 */
export async function cancelItems(
  sql: Sql,
  rules: FactRules,
  ids: readonly string[],
): Promise<readonly Canceled[]> {
  const rows = await lockPayouts(sql, null, ids);
  const idsOf = (chosen: readonly LockedPayout[]) => chosen.map(({ id }) => id);
  const open = rows.filter(({ status }) => status === 'processing');
  const unsent = open.filter(({ submitStartedAt }) => submitStartedAt === null);
  const lost = await cancelLost(sql, idsOf(open.filter((row) => row.submitStartedAt !== null)));
  const facts = new Map(idsOf(unsent).map((id) => [id, withdrawn]));
  const released = await applyFacts(sql, rules, { driver: null, ids: idsOf(unsent) }, facts);
  const pending = rows.filter(
    ({ status, attentionReason }) =>
      status === 'pending' && !hasConflictingReports(attentionReason),
  );
  const moves = idsOf(pending).map((id) => ({ id, ...undecidedCancellation }));
  const moved = await movePayouts(sql, pending, moves);
  const voided = rows.filter(({ id }) => lost.has(id));
  const own = new Map(ownOf([...unsent, ...pending, ...voided]).map((row) => [row.id, row]));
  await makeDue(sql, [...own.keys()]);
  const subscribed = await announce(sql, moved);
  const canceled = [...moved, ...voided].map(({ id }) => ({
    id,
    hasPendingDeliveries: subscribed.has(id),
  }));
  return [...released, ...canceled].map((each) => ({ ...each, own: own.get(each.id) ?? null }));
}

/** Returns the payouts that have their own workflows. */
export function ownOf(rows: readonly LockedPayout[]): readonly LockedPayout[] {
  return rows.filter(({ id, driver }) => driver === id);
}
