import type { Sql } from '../db/client.js';
import { type LockedPayout, lockPayouts, movePayouts } from '../db/payouts.js';
import type { FactRules } from '../domain/payout.js';
import { announce } from './announcement.js';
import { applyFacts } from './facts.js';

export type Told = { readonly isListenedTo: boolean };

const withdrawn = { kind: 'withdrawn' } as const;

/** The move of a payout that was never decided: there is nothing to release. */
const cancellation = {
  status: 'canceled',
  statusReason: 'canceled',
  railReference: null,
  returnedMinor: null,
} as const;

/**
 * Cancels those of the payouts that no rail was ever given, whoever drives them, and releases
 * what they hold.
 */
export async function cancelItems(
  sql: Sql,
  rules: FactRules,
  ids: readonly string[],
): Promise<readonly Told[]> {
  const rows = await lockPayouts(sql, null, ids);
  const idsOf = (chosen: readonly LockedPayout[]) => chosen.map(({ id }) => id);
  const unsent = rows.filter((row) => row.status === 'processing' && row.submitStartedAt === null);
  const facts = new Map(idsOf(unsent).map((id) => [id, withdrawn]));
  const steps = await applyFacts(sql, rules, null, idsOf(unsent), facts);
  const pending = rows.filter((row) => row.status === 'pending');
  const moved = await movePayouts(
    sql,
    pending,
    idsOf(pending).map((id) => ({ id, ...cancellation })),
  );
  const heard = await announce(sql, moved);
  return [...steps, ...moved.map(({ id }) => ({ isListenedTo: heard.has(id) }))];
}
