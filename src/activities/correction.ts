import type { Sql } from '../db/client.js';
import { entriesOf, listBalances, postEntries } from '../db/ledger.js';
import { movePayouts, type PayoutRow } from '../db/payouts.js';
import { correctionOf } from '../domain/correction.js';
import { type Entry, sumOn } from '../domain/ledger.js';
import { writtenSum } from '../domain/money.js';
import type { Correction } from '../domain/operator.js';
import { type AttentionReason, hasConflictingReports } from '../domain/payout.js';
import { announce } from './announce.js';
import { amountsOf } from './applyFacts.js';
import { type Decision, refused } from './operatorDecision.js';
import { owned } from './snapshot.js';

/**
 * Evaluates a correction against the current books: without a lock when it is proposed, and under
 * the payout's lock when it is executed.
 */
export async function evaluateCorrection(
  sql: Sql,
  row: PayoutRow,
  correction: Correction,
): Promise<Decision> {
  if (row.sourceMinor === null)
    return refused('The payout has not been accepted, so it has no entries.');
  const amounts = amountsOf(row);
  const posted = await entriesOf(sql, row.id);
  const entry = correctionOf(correction, amounts, posted);
  if (typeof entry === 'string') return refused(entry);
  if (!(await isCovered(sql, row.accountId, entry))) {
    return refused("The customer's balance does not cover it.");
  }
  const currency = amounts.destinationCurrency;
  const leftMinor = sumOn([...posted, entry], 'suspense', currency);
  const left = `The correction leaves ${writtenSum(leftMinor, currency)} in suspense.`;
  const undone = posted.find(({ id }) => id === entry.reverses);
  return {
    outcome: 'done',
    detail: `Entry ${entry.kind}: ${entry.postings.map(postingText).join(', ')}.`,
    entry,
    // Two people have reviewed the payout, and nothing is left to decide.
    unparks: leftMinor === 0n && row.attentionReason === 'paid_after_release',
    ...(leftMinor !== 0n && { parks: { reason: parkedFor(row), detail: left } }),
    ...(undone?.kind === 'settle' && row.status === 'settled'
      ? { move: { ...undoing, returnedMinor: amounts.receiveMinor } }
      : {}),
  };
}

/** Money in suspense does not end a dispute: the rail's next report must not move a payout in flight. */
function parkedFor({ attentionReason }: PayoutRow): AttentionReason {
  return attentionReason !== null && hasConflictingReports(attentionReason)
    ? attentionReason
    : 'paid_after_release';
}

/** The move for a settlement that never happened: the customer gets everything back, and an event. */
const undoing = {
  status: 'returned',
  statusReason: 'corrected',
  railReference: null,
  settledAt: null,
} as const;

/** Returns why money in suspense keeps a payout parked, or undefined if it has none. */
export async function suspenseFault(sql: Sql, row: PayoutRow): Promise<string | undefined> {
  const currency = row.destinationCurrency ?? '';
  const sumMinor = sumOn(await entriesOf(sql, row.id), 'suspense', currency);
  return sumMinor === 0n
    ? undefined
    : `Its suspense balance is ${writtenSum(sumMinor, currency)}, and two operators have to clear it: corridor ` +
        'payouts late-return for what came back, then clear-suspense; correct for anything else.';
}

/** Posts a correction's entry and makes its move. The ledger requires the command's audit line first. */
export async function postCorrection(
  sql: Sql,
  row: PayoutRow,
  { entry, move }: Decision,
  action: string,
): Promise<void> {
  if (entry !== undefined) await postEntries(sql, [{ ...owned(row, entry), action }]);
  if (move !== undefined) {
    await announce(sql, await movePayouts(sql, [row], [{ id: row.id, ...move }]));
  }
}

/** Whether the customer's balance covers the entry. The database checks again, in case of a race. */
async function isCovered(sql: Sql, accountId: string, entry: Entry): Promise<boolean> {
  const balances = await listBalances(sql, accountId);
  return entry.postings.every(({ currency }) => {
    const current = balances.find((balance) => balance.currency === currency);
    const availableMinor = (current?.availableMinor ?? 0n) + sumOn([entry], 'available', currency);
    const heldMinor = (current?.heldMinor ?? 0n) + sumOn([entry], 'held', currency);
    return availableMinor >= 0n && heldMinor >= 0n;
  });
}

function postingText({ account, currency, amountMinor }: Entry['postings'][number]): string {
  return `${account} ${writtenSum(amountMinor, currency)}`;
}
