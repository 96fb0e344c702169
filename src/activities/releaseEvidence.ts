import { type Database, longTransaction } from '../db/client.js';
import type { LockedPayout } from '../db/payouts.js';
import { readEvidence } from '../db/statements.js';
import { clearVoidIntent, writeVoidIntent } from '../db/submissions.js';
import { hasConflictingReports, railKey, type VoidOutcome } from '../domain/payout.js';
import type { Rail } from '../rails/rail.js';
import { amountsOf } from './applyFacts.js';
import { messageOf, retryLater, throwForeign } from './failure.js';
import { readStatements } from './statements.js';

// Proof that a rail will not pay: it was never called, it has voided the key while it still knows
// the key, or its closed statements do not show the payment.

/**
 * Has the rail void a payout's key. The intended outcome is committed first, so that a crash after
 * the void cannot turn a cancellation into a failure or the reverse. The transaction that applies
 * the `voided` fact, possibly another worker's, writes that outcome.
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
 * Requests a void whose intent is written, and clears the intent if the void comes too late.
 * At `begunMs` the rail was known to remember the key: a process that was suspended since then
 * requests no void, and trusts no answer.
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
  const answer = await rail.voidKey(railKey(id)).catch(throwForeign);
  throwIfStale();
  if (answer === 'too_late') await clearVoidIntent(database, id);
  return answer;
}

/** Many times longer than a step and its rail call take, and negligible against a rail's key retention. */
const callLimitMs = 60_000;

/**
 * Whether more time has passed since `begunMs` than a step needs to call the rail. Then the process
 * was suspended, others went on meanwhile, and the rail may have forgotten the key. Measured by the
 * wall clock, since a monotonic clock may stop while the machine is suspended.
 */
export function isStale(begunMs: number): boolean {
  return Math.abs(Date.now() - begunMs) > callLimitMs;
}

/** Margin before the key retention ends: a call begun while the key is remembered must arrive in time. */
const keyMarginMs = 60 * 60 * 1000;

/**
 * Whether the rail still knows the key, counted from the first attempt if there was one. Only then
 * does "not found" justify sending the order again, and a void prove that the rail has not paid:
 * a rail that has forgotten a key also voids an order that it paid long ago.
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
 * Whether a void would prove that the rail will not pay: only while it has not accepted the order,
 * still knows the key, and has not contradicted itself.
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
 * Returns why the statements do not prove that the rail never paid, or undefined if they do. Every
 * day from the one before the first submission (clocks differ) to the stated one must be closed,
 * without a payment of the order or an unmatched payment of its amount. By the stated day the
 * rail's time must be over, counted from the last time the order was sent.
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
    return `--statement-date expects ${deadline} or later, because until then the rail may still pay.`;
  }
  // Earlier statements, which the bank may fail to provide, have no bearing on the order.
  const from = dayOf(firstSentAt.getTime() - 24 * 60 * 60_000);
  // A day that cannot be read may be one that this proof does not need.
  const unread = await readStatements(database, rail, from).then(() => '', messageOf);
  const { receiveMinor, destinationCurrency } = amountsOf(row);
  // If the rail's reports conflict, it may have paid another amount than the order's.
  const isDisputed = hasConflictingReports(row.attentionReason);
  const asked = {
    rail: rail.name,
    key: railKey(row.id),
    amountMinor: isDisputed ? null : receiveMinor,
    currency: isDisputed ? null : destinationCurrency,
    since: firstSentAt,
    until: statementDate,
  };
  const evidence = await longTransaction(database, evidenceLimitMs, (sql) =>
    readEvidence(sql, asked),
  );
  if (evidence.payments > 0) return `The statements up to ${statementDate} show a payment.`;
  if (evidence.openDays > 0) {
    return `${evidence.openDays} of the days up to ${statementDate} have no closed statement yet. ${unread}`.trimEnd();
  }
  return evidence.unmatched > 0
    ? `The statements show ${evidence.unmatched} payments${isDisputed ? '' : ' of its amount'} that the ` +
        'ledger does not account for: this payout may be one of them. Ask the bank what they are.'
    : undefined;
}

/**
 * For a dispute, a week of all the bank's payments is compared with the ledger. With 5 s for a void, 5 s for a
 * look-up and 25 s for the statements, it ends within the activity's minute.
 */
const evidenceLimitMs = 20_000;

/** Covers the time between the commit of a submission and its sending, and differing clocks. */
const clockMarginMs = 60 * 60 * 1000;
