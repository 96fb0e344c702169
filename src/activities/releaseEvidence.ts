import type { Database } from '../db/client.js';
import type { LockedPayout } from '../db/payouts.js';
import { readEvidence } from '../db/statements.js';
import { clearVoidIntent, writeVoidIntent } from '../db/submissions.js';
import { hasConflictingReports, railKey, type VoidOutcome } from '../domain/payout.js';
import type { Rail } from '../rails/rail.js';
import { amountsOf } from './applyFacts.js';
import { retryLater } from './failure.js';
import { readStatements } from './statements.js';

// What proves that a rail does not pay: that it was never called, that it has voided the key while
// it still knows it, or closed statements without the payment.

/**
 * Has the rail void a payout's key. What that makes of the payout is committed first, so that a
 * crash after the void cannot turn a cancellation into a failure, or the other way round. The
 * end itself is written by whichever transaction applies the `voided` fact.
 */
export async function voidKey(
  database: Database,
  rail: Rail,
  payout: { readonly driver: string; readonly id: string },
  intent: VoidOutcome,
): Promise<'voided' | 'too_late'> {
  const begunMs = Date.now();
  const written = await writeVoidIntent(database, payout, intent, rememberedMs(rail));
  if (written === undefined) {
    throw retryLater('The payout has changed meanwhile; it is read again.');
  }
  return finishVoid(database, rail, payout.id, begunMs);
}

/**
 * Asks for a void whose intent is written; one that comes too late takes the intent back.
 * `begunMs` is when the rail was known to remember the key: a process that was suspended since
 * asks for nothing, and believes no answer.
 */
export async function finishVoid(
  database: Database,
  rail: Rail,
  id: string,
  begunMs: number,
): Promise<'voided' | 'too_late'> {
  const throwIfStale = () => {
    if (!isStale(begunMs)) return;
    throw retryLater('The process was suspended during the void; the order is looked up.');
  };
  throwIfStale();
  const answer = await rail.voidKey(railKey(id));
  throwIfStale();
  if (answer === 'too_late') await clearVoidIntent(database, id);
  return answer;
}

/** Many times what a step and its call to the rail take, and nothing against a rail's memory. */
const callLimitMs = 60_000;

/**
 * Whether more has passed since then than between a step and its call to the rail: the process
 * was suspended, others went on meanwhile, and the rail may have forgotten what it knew.
 * Measured by the wall clock, since a monotonic one may stand still with the machine.
 */
export function isStale(begunMs: number): boolean {
  return Math.abs(Date.now() - begunMs) > callLimitMs;
}

/** A call that begins while the key is remembered must also arrive while it is. */
const keyMarginMs = 60 * 60 * 1000;

/**
 * Whether the rail still knows the key, counted from the first attempt, if there was one. Only then
 * is "not found" a reason to send it again, and a void a proof that the rail has not paid: a rail
 * that has forgotten a key will also void what it has long paid.
 */
export function keyIsRemembered(
  rail: Rail,
  { sinceFirstAttemptMs }: { readonly sinceFirstAttemptMs: number | null },
): boolean {
  return sinceFirstAttemptMs === null || sinceFirstAttemptMs < rememberedMs(rail);
}

function rememberedMs({ limits }: Rail): number {
  return limits.keyRetentionMs - Math.min(keyMarginMs, limits.keyRetentionMs / 2);
}

/**
 * Whether a void would prove that the rail does not pay: only while it has not taken the order,
 * still knows the key, and has said nothing that contradicts itself.
 */
export function isVoidable(row: LockedPayout, rail: Rail): boolean {
  return (
    row.status === 'processing' &&
    row.submitStartedAt !== null &&
    keyIsRemembered(rail, row) &&
    !hasConflictingReports(row.attentionReason)
  );
}

/**
 * Why the statements do not prove that the rail never paid: every day from the one before the
 * first submission, for clocks differ, to the stated one has to be closed without a payment of
 * the order, or one of its amount that belongs to nothing; and by then the rail's time must be
 * over, counted from the last time the order was sent.
 */
export async function gapInStatements(
  database: Database,
  row: LockedPayout,
  rail: Rail,
  statementDate: string,
): Promise<string | undefined> {
  const firstSentAt = row.submitStartedAt ?? row.requestedAt;
  const lastSentAt = row.lastSentAt ?? firstSentAt;
  const dayOf = (ms: number) => new Date(ms).toISOString().slice(0, 10);
  const deadline = dayOf(lastSentAt.getTime() + rail.limits.settleWithinMs + clockMarginMs);
  if (statementDate < deadline) {
    return `--statement-date expects ${deadline} or later, for until then the rail may still pay.`;
  }
  // An earlier one that the bank cannot give says nothing of the order.
  await readStatements(database, rail, dayOf(firstSentAt.getTime() - 24 * 60 * 60_000));
  const { receiveMinor, destinationCurrency } = amountsOf(row);
  // What the rail may have paid is another amount, where it has reported one.
  const isDisputed = hasConflictingReports(row.attentionReason);
  const evidence = await readEvidence(database, {
    rail: rail.name,
    key: railKey(row.id),
    amountMinor: isDisputed ? null : receiveMinor,
    currency: isDisputed ? null : destinationCurrency,
    since: firstSentAt,
    until: statementDate,
  });
  if (evidence.payments > 0) return `The statements up to ${statementDate} show a payment.`;
  if (evidence.openDays > 0) {
    return `${evidence.openDays} of the days up to ${statementDate} have no closed statement yet.`;
  }
  return evidence.unmatched > 0
    ? `The statements show ${evidence.unmatched} payments${isDisputed ? '' : ' of its amount'} that the ` +
        'ledger does not account for: it may be one of them. Find out with the bank what they are.'
    : undefined;
}

/** What lies between the commit of a submission and its sending, and clocks that differ. */
const clockMarginMs = 60 * 60 * 1000;
