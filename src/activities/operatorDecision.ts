import type { Database } from '../db/client.js';
import type { LockedPayout } from '../db/payouts.js';
import { readEvidence } from '../db/statements.js';
import type { Entry } from '../domain/ledger.js';
import type { OperatorCommand, OperatorResult } from '../domain/operator.js';
import {
  hasConflictingReports,
  type PayoutFact,
  type PayoutStatus,
  railKey,
} from '../domain/payout.js';
import { type Move, undecidedCancellation } from '../domain/progress.js';
import type { Rail } from '../rails/rail.js';
import { amountsOf } from './applyFacts.js';
import { factFromLookup } from './lookup.js';
import { readStatements } from './statements.js';
import { isStale, keyIsRemembered, voidKey } from './void.js';

/** What a command comes to: what is applied to the payout, and what the operator reads. */
export type Decision = {
  readonly outcome: OperatorResult['outcome'];
  readonly detail: string;
  readonly fact?: PayoutFact;
  readonly unparks?: boolean;
  readonly settleBy?: string;
  /** The status that the payout must have afterwards, or the command was not executed. */
  readonly expectedStatus?: PayoutStatus;
  /** What a correction books. */
  readonly entry?: Entry;
  /** A move that follows from no fact: of a payout whose settlement is undone, or was never decided. */
  readonly move?: Move;
};

export const refused = (detail: string): Decision => ({ outcome: 'refused', detail });
const done = (detail: string, effect: Omit<Decision, 'outcome' | 'detail'>): Decision => ({
  outcome: 'done',
  detail,
  ...effect,
});

/**
 * Decides on a command by the row and by what the rail says now. A hold is released only after
 * the rail has rejected or voided the key, or its closed statements show that it did not pay.
 */
export async function evaluate(
  database: Database,
  command: Exclude<OperatorCommand, { kind: 'correct' }>,
  row: LockedPayout,
  rail: Rail | undefined,
): Promise<Decision> {
  if (command.kind === 'cancel') return evaluateCancel(database, row, rail);
  if (rail === undefined) {
    return command.kind === 'retryNow' && row.status === 'pending'
      ? done('It is decided again.', { unparks: true })
      : refused('The payout was never accepted.');
  }
  switch (command.kind) {
    case 'retryNow':
      return evaluateRetry(row, rail);
    case 'markSettled':
      return evaluateSettled(row, rail);
    case 'failAndRelease':
      return evaluateRelease(database, row, rail, command.statementDate);
    case 'extendDeadline':
      if (isNotInFlight(row))
        return refused(`The payout is ${row.status}; there is nothing to wait for.`);
      if (row.settleBy !== null && new Date(command.until) <= row.settleBy) {
        return refused(`until: expected a time after ${row.settleBy.toISOString()}.`);
      }
      return done(`The rail has until ${command.until}.`, {
        unparks: true,
        settleBy: command.until,
      });
    case 'approve':
      return refused('A proposal cannot approve another one.');
  }
}

async function evaluateCancel(
  database: Database,
  row: LockedPayout,
  rail: Rail | undefined,
): Promise<Decision> {
  const expectedStatus = 'canceled' as const;
  if (row.status === expectedStatus) return done('The payout is canceled.', {});
  if (row.status === 'pending' && row.attentionReason !== null) {
    return done('Canceled before it was decided.', {
      move: undecidedCancellation,
      unparks: true,
    });
  }
  if (row.status !== 'processing' || rail === undefined) {
    return refused(`The payout is ${row.status}.`);
  }
  if (row.submitStartedAt === null) {
    const fact = { kind: 'withdrawn' } as const;
    const detail = 'Canceled before the rail was called.';
    return done(detail, { fact, unparks: true, expectedStatus });
  }
  if (!isVoidable(row, rail)) {
    return refused('The rail may have taken the payout: an operator has to find out.');
  }
  return (await voidKey(database, rail, row, expectedStatus)) === 'voided'
    ? done('Canceled; the rail has voided its key.', {
        fact: voided,
        unparks: true,
        expectedStatus,
      })
    : refused('The rail has taken the payout.');
}

const voided = { kind: 'voided' } as const;

/**
 * Whether a void would prove that the rail does not pay: only while it has not taken the order,
 * still knows the key, and has said nothing that contradicts itself.
 */
function isVoidable(row: LockedPayout, rail: Rail): boolean {
  const { status, sinceFirstAttemptMs, attentionReason } = row;
  return (
    status === 'processing' &&
    sinceFirstAttemptMs !== null &&
    keyIsRemembered(rail, { sinceFirstAttemptMs }) &&
    !hasConflictingReports(attentionReason)
  );
}

async function evaluateRetry(row: LockedPayout, rail: Rail): Promise<Decision> {
  if (isNotInFlight(row)) {
    return refused(`The payout is ${row.status}. Confirm it with settle or fail.`);
  }
  const begunMs = Date.now();
  const fact = await factAt(rail, row);
  if (fact !== undefined && (fact.kind !== 'accepted' || row.status === 'processing')) {
    if (fact.kind === 'voided' && (isStale(begunMs) || !isVoidable(row, rail))) {
      return refused(
        'The rail says voided, but the key may have expired there: that does not prove that it did ' +
          'not pay. Use fail with the day of a closed statement.',
      );
    }
    if (
      hasConflictingReports(row.attentionReason) &&
      fact.kind !== 'settled' &&
      fact.kind !== 'accepted'
    ) {
      return refused(
        `The rail says ${fact.kind}, but its reports contradict each other, so that is no proof. ` +
          'Use settle with evidence, or fail with the day of a statement.',
      );
    }
    return done(`The rail says: ${fact.kind}.`, { fact, unparks: true });
  }
  if (row.status === 'processing') {
    const { sinceFirstAttemptMs } = row;
    return sinceFirstAttemptMs === null || keyIsRemembered(rail, { sinceFirstAttemptMs })
      ? done('It is sent again under the same key.', { unparks: true })
      : refused('The rail does not know the key, and may have forgotten it: it is not sent again.');
  }
  return Number(row.settleInMs ?? 0n) > 0
    ? done('The rail has reported nothing new; the payout waits for it again.', { unparks: true })
    : refused('The rail has reported nothing new in its time. Extend the deadline to wait longer.');
}

async function evaluateSettled(row: LockedPayout, rail: Rail): Promise<Decision> {
  if (row.status === 'settled' || row.status === 'returned') {
    return done(`Confirmed: it is ${row.status}.`, { unparks: true });
  }
  if (isNotInFlight(row))
    return refused(`The payout is ${row.status} and cannot be settled any more.`);
  const fact = await factAt(rail, row);
  if (fact?.kind === 'rejected' || fact?.kind === 'returned' || fact?.kind === 'voided') {
    return refused(`The rail contradicts: it says ${fact.kind}.`);
  }
  const at = fact?.kind === 'settled' ? fact.at : undefined;
  const { receiveMinor, destinationCurrency } = amountsOf(row);
  return done('Settled on the evidence that was given.', {
    fact: { kind: 'settled', amountMinor: receiveMinor, currency: destinationCurrency, at },
    unparks: true,
  });
}

async function evaluateRelease(
  database: Database,
  row: LockedPayout,
  rail: Rail,
  statementDate: string | null,
): Promise<Decision> {
  if (row.attentionReason === 'return_short') return evaluateShortReturn(row, rail);
  if (row.status === 'failed' || row.status === 'canceled' || row.status === 'returned') {
    return done(`Confirmed: it is ${row.status}.`, { unparks: true });
  }
  if (isNotInFlight(row))
    return refused(`The payout is ${row.status}; only a return gives money back.`);
  const expectedStatus = 'failed' as const;
  if (row.submitStartedAt === null) {
    const fact = { kind: 'released' } as const;
    const detail = 'Released; the rail was never called.';
    return done(detail, { fact, unparks: true, expectedStatus });
  }
  if (isVoidable(row, rail) && (await voidKey(database, rail, row, expectedStatus)) === 'voided') {
    return done('Released; the rail has voided its key.', {
      fact: voided,
      unparks: true,
      expectedStatus,
    });
  }
  const known = await factAt(rail, row);
  if (known?.kind === 'settled' || known?.kind === 'returned') {
    return refused(`The rail says ${known.kind}: use retry to take its word.`);
  }
  if (known?.kind === 'rejected' && !hasConflictingReports(row.attentionReason)) {
    const detail = `Released; the rail has rejected it (${known.code}).`;
    return done(detail, { fact: known, unparks: true, expectedStatus });
  }
  if (statementDate === null) {
    return refused(
      'The rail gives no proof that it will not pay. Give the day of a closed statement as evidence.',
    );
  }
  const gap = await gapInEvidence(database, row, rail, statementDate);
  if (gap !== undefined) return refused(gap);
  const detail = `Released; the statements up to ${statementDate} show no payment.`;
  return done(detail, { fact: { kind: 'released' }, unparks: true, expectedStatus });
}

/** A person takes a return as the end of the payout, however little came back. */
async function evaluateShortReturn(row: LockedPayout, rail: Rail): Promise<Decision> {
  const known = await factAt(rail, row);
  if (known?.kind !== 'returned') {
    return refused(
      `The rail says ${known?.kind ?? 'nothing'}, and no longer that it was returned.`,
    );
  }
  const { amountMinor, currency } = known;
  const { receiveMinor } = amountsOf(row);
  return done(
    `Returned; the customer has the net amount back, and ${amountMinor} of ${receiveMinor} ${currency} (minor units) came back.`,
    { fact: { ...known, isConfirmed: true }, unparks: true, expectedStatus: 'returned' },
  );
}

/**
 * Why the statements do not prove that the rail never paid: every day from the one before the
 * first submission, for clocks differ, to the given one has to be closed without a payment of
 * the order, or one of its amount that belongs to nothing; and by then the rail's time must be
 * over, counted from the last time the order was sent.
 */
async function gapInEvidence(
  database: Database,
  row: LockedPayout,
  rail: Rail,
  statementDate: string,
): Promise<string | undefined> {
  const firstSentAt = row.submitStartedAt ?? row.requestedAt;
  const lastSentAt = row.lastSentAt ?? firstSentAt;
  const deadlineMs = lastSentAt.getTime() + rail.limits.settleWithinMs + clockMarginMs;
  const deadline = new Date(deadlineMs).toISOString().slice(0, 10);
  if (statementDate < deadline) {
    return `statementDate: expected ${deadline} or later, for until then the rail may still pay.`;
  }
  await readStatements(database, rail);
  const { receiveMinor, destinationCurrency } = amountsOf(row);
  const evidence = await readEvidence(database, {
    rail: rail.name,
    key: railKey(row.id),
    amountMinor: receiveMinor,
    currency: destinationCurrency,
    since: firstSentAt,
    until: statementDate,
  });
  if (evidence.payments > 0) return `The statements up to ${statementDate} show a payment.`;
  if (evidence.openDays > 0) {
    return `${evidence.openDays} of the days up to ${statementDate} have no closed statement yet.`;
  }
  return evidence.unmatched > 0
    ? `The statements show ${evidence.unmatched} payments of its amount that the ledger does not ` +
        'account for: it may be one of them. Find out with the bank what they are.'
    : undefined;
}

/** What lies between the commit of a submission and its sending, and clocks that differ. */
const clockMarginMs = 60 * 60 * 1000;

async function factAt(rail: Rail, { id }: LockedPayout): Promise<PayoutFact | undefined> {
  const [answer] = await rail.lookup([railKey(id)]);
  return answer === undefined ? undefined : factFromLookup(answer);
}

function isNotInFlight(row: LockedPayout): boolean {
  return row.status !== 'processing' && row.status !== 'sent';
}
