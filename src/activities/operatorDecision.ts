import { batchRatesOf } from '../db/batches.js';
import type { Database } from '../db/client.js';
import type { LockedPayout } from '../db/payouts.js';
import { conflicting, maybeTaken, partlyReturned } from '../domain/commandRules.js';
import {
  type FactRules,
  isAmountSent,
  isBookable,
  isShortReturn,
  type PayoutFact,
  sentSum,
  statedSum,
} from '../domain/factEffect.js';
import type { Entry } from '../domain/ledger.js';
import type { OperatorCommand, OperatorResult } from '../domain/operator.js';
import {
  type Attention,
  endedUnpaid,
  hasConflictingReports,
  isInFlight,
  type PayoutStatus,
  railKey,
  type VoidOutcome,
} from '../domain/payout.js';
import { type Move, undecidedCancellation } from '../domain/progress.js';
import type { Rail } from '../rails/rail.js';
import { amountsOf } from './applyFacts.js';
import type { RailDeps } from './deps.js';
import { throwForeign } from './failure.js';
import { answersTo, factFromLookup } from './lookup.js';
import {
  gapInStatements,
  isStale,
  isVoidable,
  keyIsRemembered,
  voidKey,
} from './releaseEvidence.js';

/** The result of a command: its effects on the payout, and the text for the operator. */
export type Decision = {
  readonly outcome: OperatorResult['outcome'];
  readonly detail: string;
  readonly fact?: PayoutFact;
  readonly unparks?: boolean;
  readonly settleBy?: string;
  /** The status that the payout must have afterwards; otherwise the command is reported as refused. */
  readonly expectedStatus?: PayoutStatus;
  /** The ledger entry of a correction. */
  readonly entry?: Entry;
  /** A move without a fact: it undoes a settlement, or cancels a payout that was never decided. */
  readonly move?: Move;
  /** Why the payout is parked afterwards. */
  readonly parks?: Attention;
};

export const refused = (detail: string): Decision => ({ outcome: 'refused', detail });
/** The decision to execute a command, after which the payout is no longer parked. */
const done = (detail: string, effect: Omit<Decision, 'outcome' | 'detail'> = {}): Decision => ({
  outcome: 'done',
  detail,
  unparks: true,
  ...effect,
});

/**
 * Decides on a command that the row itself does not refuse (domain/commandRules.ts), by the rail's current
 * answer. A hold is released only after the rail has rejected or voided the key, or its closed
 * statements show that it did not pay.
 */
export async function evaluate(
  { database, factRules }: Pick<RailDeps, 'database' | 'factRules'>,
  command: Exclude<OperatorCommand, { kind: 'correct' }>,
  row: LockedPayout,
  rail: Rail | undefined,
): Promise<Decision> {
  if (command.kind === 'cancel') return evaluateCancel(database, row, rail);
  if (rail === undefined) {
    if (await awaitsItsBatch(database, row)) return refused(togetherOnly);
    return done(
      endedUnpaid(row.status)
        ? `Confirmed: its status is ${row.status}.`
        : 'It will be decided again.',
    );
  }
  switch (command.kind) {
    case 'retryNow':
      return evaluateRetry(row, rail);
    case 'markSettled':
      return evaluateSettled(row, rail, factRules);
    case 'failAndRelease':
      return evaluateRelease(database, row, rail, command.statementDate);
    case 'extendDeadline':
      if (row.settleBy !== null && new Date(command.until) <= row.settleBy) {
        return refused(`--until expects a time after ${row.settleBy.toISOString()}.`);
      }
      return done(`The rail has until ${command.until}.`, { settleBy: command.until });
    case 'approve':
      return refused('A proposal cannot approve another one.');
  }
}

export const togetherOnly = 'It is decided with the rest of its batch, which is not decided yet.';

/** Whether a payout is pending in an all-or-nothing batch: if paid alone, the others could be refused. */
export async function awaitsItsBatch(database: Database, { id, status }: LockedPayout) {
  if (status !== 'pending') return false;
  return (await batchRatesOf(database, [id])).some(({ isUndecided }) => isUndecided);
}

async function evaluateCancel(
  database: Database,
  row: LockedPayout,
  rail: Rail | undefined,
): Promise<Decision> {
  if (row.status === 'canceled') return { outcome: 'done', detail: 'The payout is canceled.' };
  if (rail === undefined) {
    return done('Canceled before it was decided.', { move: undecidedCancellation });
  }
  const ended = await endUntaken(database, rail, row, 'canceled');
  if (ended !== undefined) return ended;
  return refused(isVoidable(row, rail) ? 'The rail has taken the payout.' : maybeTaken);
}

const endings = {
  canceled: {
    fact: { kind: 'withdrawn' },
    unsent: 'Canceled before the rail was called.',
    said: 'Canceled',
  },
  failed: {
    fact: { kind: 'released' },
    unsent: 'Released; the rail was never called.',
    said: 'Released',
  },
} as const;

/** Ends a payout that was never submitted, or whose key the rail voids now. Undefined if it may be paid. */
async function endUntaken(
  database: Database,
  rail: Rail,
  row: LockedPayout,
  expectedStatus: VoidOutcome,
): Promise<Decision | undefined> {
  const { fact, unsent, said } = endings[expectedStatus];
  // A rail that reports on an order we never submitted may have it all the same.
  const isDisputed = hasConflictingReports(row.attentionReason);
  if (row.submitStartedAt === null && !isDisputed) return done(unsent, { fact, expectedStatus });
  const isVoided =
    isVoidable(row, rail) && (await voidKey(database, rail, row, expectedStatus)) === 'voided';
  return isVoided
    ? done(`${said}; the rail has voided its key.`, { fact: { kind: 'voided' }, expectedStatus })
    : undefined;
}

async function evaluateRetry(row: LockedPayout, rail: Rail): Promise<Decision> {
  const begunMs = Date.now();
  const fact = await factAt(rail, row);
  const takesOrder = fact?.kind === 'accepted' && row.status === 'processing';
  if (hasConflictingReports(row.attentionReason)) {
    // That the rail has the order does not resolve the conflict: the payout stays parked.
    if (takesOrder) return done('The rail has the order.', { fact, unparks: false });
    if (row.attentionReason === 'return_short') return refused(partlyReturned);
    const isPaid = fact?.kind === 'settled' && isAmountSent(amountsOf(row), fact);
    return isPaid
      ? done('The rail reports: settled.', { fact, expectedStatus: 'settled' })
      : refused(conflicting);
  }
  if (fact?.kind === 'voided' && (isStale(begunMs) || !isVoidable(row, rail))) {
    return refused(
      'The rail reports voided, but it may have forgotten the key, so this does not prove that it did ' +
        'not pay. Use fail with the --statement-date of a closed statement.',
    );
  }
  if (fact !== undefined && (fact.kind !== 'accepted' || takesOrder)) {
    return done(`The rail reports: ${fact.kind}.`, { fact });
  }
  if (row.status === 'processing') {
    return keyIsRemembered(rail, row)
      ? done('The order will be sent again under the same key.')
      : refused(
          'The rail does not know the key, but may have forgotten it, so the order is not sent again.',
        );
  }
  return Number(row.settleInMs ?? 0n) > 0
    ? done('The rail has reported nothing new; the payout keeps waiting for it.')
    : refused('The rail has reported nothing new by its deadline. Use extend to wait longer.');
}

async function evaluateSettled(row: LockedPayout, rail: Rail, rules: FactRules): Promise<Decision> {
  const isDisputed = hasConflictingReports(row.attentionReason);
  if (row.status === 'returned' || (row.status === 'settled' && !isDisputed)) {
    return done(`Confirmed: its status is ${row.status}.`);
  }
  const fact = await factAt(rail, row);
  const isShort = row.status === 'settled' && row.attentionReason === 'return_short';
  const amounts = amountsOf(row);
  // What is only a small part, or cannot be booked, does not keep a person from deciding that it was paid.
  if (
    fact?.kind === 'returned' &&
    (!isDisputed || isBookable(amounts, fact)) &&
    !(isShort && isShortReturn(amounts, fact, rules))
  ) {
    const command = isDisputed ? 'fail to book that' : 'retry to accept that';
    return refused(`The rail reports returned: use ${command}.`);
  }
  if (row.status === 'settled') return done('Confirmed: its status is settled.');
  // A rail that contradicts itself cannot contradict a person's evidence.
  if (!isDisputed && (fact?.kind === 'rejected' || fact?.kind === 'voided')) {
    return refused(`The rail contradicts this: it reports ${fact.kind}.`);
  }
  if (!isDisputed && fact?.kind === 'settled' && !isAmountSent(amounts, fact)) {
    return refused(`${anotherAmount(row, fact)} Ask the bank, use retry, then settle.`);
  }
  const at = fact?.kind === 'settled' ? fact.at : undefined;
  const { receiveMinor: amountMinor, destinationCurrency: currency } = amounts;
  const settled = { kind: 'settled', amountMinor, currency, at } as const;
  return done('Settled on the evidence given.', { fact: settled, expectedStatus: 'settled' });
}

async function evaluateRelease(
  database: Database,
  row: LockedPayout,
  rail: Rail,
  statementDate: string | null,
): Promise<Decision> {
  if (endedUnpaid(row.status)) return done(`Confirmed: its status is ${row.status}.`);
  const expectedStatus = 'failed';
  const isShort = row.attentionReason === 'return_short';
  const ended =
    isInFlight(row.status) && !isShort
      ? await endUntaken(database, rail, row, expectedStatus)
      : undefined;
  if (ended !== undefined) return ended;
  const known = await factAt(rail, row);
  const isDisputed = hasConflictingReports(row.attentionReason);
  // Conflicting reports move no money by themselves; here a person accepts this one as true.
  if (known?.kind === 'returned' && isDisputed && isBookable(amountsOf(row), known)) {
    return confirmedReturn(row, known);
  }
  if (isShort) {
    const said = known?.kind ?? 'nothing';
    return refused(
      `The rail no longer reports a return: it reports ${said}. Ask the bank, then settle with evidence ` +
        'and book what came back with correct.',
    );
  }
  if (!isInFlight(row.status)) {
    return refused(`The payout is ${row.status}; only a return from the bank can refund it.`);
  }
  if (known?.kind === 'settled' && !isAmountSent(amountsOf(row), known)) {
    const first = isDisputed ? '' : ' use retry,';
    return refused(`${anotherAmount(row, known)} Ask the bank,${first} then settle.`);
  }
  if (known?.kind === 'settled' || known?.kind === 'returned') {
    const command = isDisputed ? 'settle with evidence' : 'retry to accept that';
    return refused(`The rail reports ${known.kind}: use ${command}.`);
  }
  if (known?.kind === 'rejected' && !isDisputed) {
    const detail = `Released; the rail has rejected it (${known.code}).`;
    return done(detail, { fact: known, expectedStatus });
  }
  if (statementDate === null) {
    return refused(
      'The rail gives no proof that it will not pay. Use --statement-date with the day of a closed statement.',
    );
  }
  const gap = await gapInStatements(database, row, rail, statementDate);
  if (gap !== undefined) return refused(gap);
  const detail = `Released; the statements up to ${statementDate} show no payment.`;
  return done(detail, { fact: { kind: 'released' }, expectedStatus });
}

/** A person confirms that the return ends the payout, however little came back. */
function confirmedReturn(
  row: LockedPayout,
  known: Extract<PayoutFact, { readonly kind: 'returned' }>,
): Decision {
  const sent = sentSum(amountsOf(row));
  return done(
    `Returned; the customer got the net amount back, and the rail returned ${statedSum(known)} of ${sent}.`,
    { fact: { ...known, isConfirmed: true }, expectedStatus: 'returned' },
  );
}

function anotherAmount(row: LockedPayout, fact: Parameters<typeof statedSum>[0]): string {
  const sent = sentSum(amountsOf(row));
  return `The rail reports settled with a different amount: ${statedSum(fact)} instead of ${sent}.`;
}

async function factAt(rail: Rail, { id }: LockedPayout): Promise<PayoutFact | undefined> {
  const keys = [railKey(id)];
  return factFromLookup(answersTo(keys, await rail.lookup(keys).catch(throwForeign)).get(id));
}
