import { isCurrency, writtenSum } from './money.js';
import type { RailReport } from './railReport.js';

/**
 * The states of a payout and every move between them. This table feeds the code, the
 * docs, a property test and, through a test that compares them, the database's check.
 */
export const nextStatuses = {
  pending: ['processing', 'failed', 'canceled'],
  processing: ['sent', 'failed', 'canceled'],
  sent: ['settled', 'failed', 'returned'],
  settled: ['returned'],
  failed: [],
  canceled: [],
  returned: [],
} as const;

export type PayoutStatus = keyof typeof nextStatuses;

export const payoutStatuses = [
  'pending',
  'processing',
  'sent',
  'settled',
  'failed',
  'canceled',
  'returned',
] as const satisfies readonly PayoutStatus[];

/** The present status of a payout, and since when it has, or had, each. */
export type StatusRecord = {
  readonly status: PayoutStatus;
  readonly statusReason: string | null;
  /** It is pending since then. */
  readonly requestedAt: Date;
} & { readonly [Status in Exclude<PayoutStatus, 'pending'> as `${Status}Since`]: Date | null };

export type StatusChange = {
  readonly status: PayoutStatus;
  /** ISO 8601 UTC with milliseconds. */
  readonly at: string;
  readonly reason: string | null;
};

/**
 * Every status that a payout had until the one that is given, in their order: no move leads back,
 * and only an end has a reason.
 */
export function statusHistory(record: StatusRecord): readonly StatusChange[] {
  const passed = payoutStatuses.slice(0, payoutStatuses.indexOf(record.status) + 1);
  return passed.flatMap((status) => {
    const since = status === 'pending' ? record.requestedAt : record[`${status}Since`];
    const reason = status === record.status ? record.statusReason : null;
    return since === null ? [] : [{ status, at: since.toISOString(), reason }];
  });
}

/** Whether the money is on its way: it is held, and the rail may have it. */
export function isInFlight(status: PayoutStatus): boolean {
  return status === 'processing' || status === 'sent';
}

/** Whether it has ended without a payment: the hold was given back. */
function isReleased(status: PayoutStatus): boolean {
  return status === 'failed' || status === 'canceled';
}

/** Whether its status says that the beneficiary does not have the money. */
export function endedUnpaid(status: PayoutStatus): boolean {
  return isReleased(status) || status === 'returned';
}

/** Final for the payout's own workflow; a return may still follow a settlement. */
export function isFinal(status: PayoutStatus): boolean {
  return status !== 'pending' && !isInFlight(status);
}

/** Why a payout waits for an operator. It stands beside the state and never replaces it. */
export const attentionReasons = {
  amount_mismatch: 'The rail reports another amount or currency than was sent.',
  contradiction: 'The rail reports something that contradicts what it reported before.',
  paid_after_release: 'The rail paid although the hold was released; the money is in suspense.',
  outcome_unknown: 'The rail gives no definite answer, and its key can no longer be repeated.',
  settle_by_passed: 'The rail has confirmed neither settlement nor failure in its time.',
  return_short: 'The rail returned much less than was sent; a person decides what that means.',
  unexpected_failure: 'A step failed in a way the workflow has no answer to.',
} as const;

export type AttentionReason = keyof typeof attentionReasons;

/** Why a payout waits for an operator, and everything that was found about it, a line each. */
export type Attention = { readonly reason: AttentionReason; readonly detail: string };

/** Whether the payout waits because the rail's facts contradict each other: a report alone moves no money. */
export function hasConflictingReports(reason: AttentionReason | null): boolean {
  return reason === 'amount_mismatch' || reason === 'contradiction' || reason === 'return_short';
}

/** Whether the payout only waits for the rail: the reason is gone as soon as that says something definite. */
export function isWaitingForRail(reason: AttentionReason | null): boolean {
  return (
    reason === 'outcome_unknown' || reason === 'settle_by_passed' || reason === 'unexpected_failure'
  );
}

/** Some twenty findings; a rail that contradicts itself without end has more, and the inbox keeps them all. */
const longestDetail = 2_000;

/**
 * What a payout waits for once another reason is found. The first one stays, and what follows is
 * added to its detail; but money in suspense comes first, and a contradiction before a reason that
 * only waits for the rail: the rail's word alone would end that.
 */
export function withAttention(first: Attention | null, found: Attention): Attention {
  if (first === null) return found;
  const outranks =
    found.reason === 'paid_after_release' ||
    (isWaitingForRail(first.reason) && !isWaitingForRail(found.reason));
  const { detail } = first;
  const added = () => {
    if (detail.includes(found.detail)) return detail;
    if (detail.length < longestDetail) return `${detail}\n${found.detail}`;
    // Each shows: a command that was begun before it is evaluated again.
    const [, shown = detail, more = '0'] = /^(.*)\n… and (\d+) more\.$/s.exec(detail) ?? [];
    return `${shown}\n… and ${BigInt(more) + 1n} more.`;
  };
  return { reason: outranks ? found.reason : first.reason, detail: added() };
}

/** The rail's key of a payout: its id, never random, so that a repeat is the same order. */
export function railKey(payoutId: string): string {
  return payoutId;
}

/** The id that a rail's key would be of; whether there is such a payout, the database knows. */
export function payoutOfKey(key: string): string {
  return key;
}

/** What the workflow of a payout is started with: its id, and what operators search by. */
export type WakeablePayout = {
  readonly id: string;
  readonly accountId: string;
  readonly mode: 'test' | 'live';
  readonly batchId: string | null;
  readonly sourceCurrency: string | null;
  readonly destinationCurrency: string | null;
  readonly settleBy: Date | null;
  /** What people read of it, as far as it is known: see `orderText`. */
  readonly fixedSide: 'source' | 'destination' | null;
  readonly amount: bigint | null;
  readonly sourceMinor: bigint | null;
  readonly receiveMinor: bigint | null;
};

type Returned = Extract<RailReport, { readonly kind: 'returned' }>;

/**
 * What is known of one transfer: what the rail reports, and three things more. `withdrawn` was
 * never given to the rail, and `released` is a person's decision on closed statements that show no
 * payment. `voided` means that the rail refuses the key for ever; the end it leads to was written
 * on the payout before the rail was asked for it.
 */
export type PayoutFact =
  | Exclude<RailReport, Returned>
  /** Confirmed: a person has decided that it ends the payout, however little came back. */
  | (Returned & { readonly isConfirmed?: boolean })
  | { readonly kind: 'voided' }
  | { readonly kind: 'released' }
  | { readonly kind: 'withdrawn' };

/** The end that a voided key leads to: a cancellation, or an operator's release. */
export type VoidOutcome = 'canceled' | 'failed';

/**
 * Codes (ISO 20022 external status reasons) by which a rail refuses an order because it has one
 * already: that says nothing about the order it has, so it is no rejection.
 */
const duplicateCodes = new Set(['AM05', 'DUPL', 'DU01', 'DU02', 'DU03', 'DU04', 'DU05']);

export function isDuplicateCode(code: string): boolean {
  return duplicateCodes.has(code);
}

/** What the effect of a fact depends on. */
export type PayoutState = {
  readonly status: PayoutStatus;
  readonly receiveMinor: bigint;
  readonly destinationCurrency: string;
  /** What has come back already, null before a return. */
  readonly returnedMinor: bigint | null;
  /** Why it waits for a person; null while it does not. */
  readonly attentionReason: AttentionReason | null;
  /** The end that a void begun at the rail leads to; null where none was begun. */
  readonly voidIntent: VoidOutcome | null;
  /** What two people have corrected in its books; they have reversed what is named. */
  readonly corrected: 'nothing' | 'settlement' | 'late payment' | 'other';
};

/** The configured rules about facts. */
export type FactRules = {
  /** A return of a smaller share of the amount sent waits for a person. */
  readonly returnMinimumPercent: bigint;
};

/** What a fact does: nothing, a path of one or more moves, or a case for a person. */
export type Effect =
  | { readonly kind: 'none' }
  | { readonly kind: 'move'; readonly path: readonly PayoutStatus[] }
  | ({ readonly kind: 'park' } & Attention);

const nothing: Effect = { kind: 'none' };

/**
 * The reducer of rail facts; `storeRailEvents` repeats its "nothing" for final payouts. Duplicates
 * and reordering change nothing; a fact that cannot be true together with the payout's state parks
 * it and posts nothing, but for a payment after release, which the step that applies the effect
 * books to suspense. While the rail's facts are in dispute, one that would move money is only added
 * to the case.
 */
export function effectOf(state: PayoutState, fact: PayoutFact, rules: FactRules): Effect {
  const effect = undisputedEffectOf(state, fact, rules);
  const { attentionReason } = state;
  const changesBalances = effect.kind === 'move' && effect.path.some((status) => status !== 'sent');
  return changesBalances && attentionReason !== null && hasConflictingReports(attentionReason)
    ? park(attentionReason, `Then the rail said: ${fact.kind}${detailOf(fact)}.`)
    : effect;
}

function detailOf(fact: PayoutFact): string {
  const amount = 'amountMinor' in fact ? ` ${statedSum(fact)}` : '';
  return 'code' in fact ? `${amount} ${fact.code}` : amount;
}

function undisputedEffectOf(state: PayoutState, fact: PayoutFact, rules: FactRules): Effect {
  switch (fact.kind) {
    case 'accepted':
      return state.status === 'processing' ? move('sent') : nothing;
    case 'settled':
      return effectOfSettlement(state, fact);
    case 'rejected':
      return effectOfRejection(state.status, fact.code);
    case 'returned':
      return effectOfReturn(state, fact, rules);
    case 'voided':
      return effectOfVoid(state);
    case 'released':
      return isInFlight(state.status) ? move('failed') : nothing;
    case 'withdrawn':
      return state.status === 'processing' ? move('canceled') : nothing;
  }
}

/** A void we asked for ends what the rail has not taken; any other contradicts what we know. */
function effectOfVoid({ status, voidIntent }: PayoutState): Effect {
  if (isReleased(status)) return nothing;
  if (status !== 'processing') {
    return park('contradiction', `The rail has voided the key of a payout that is ${status}.`);
  }
  return voidIntent === null
    ? park('contradiction', 'The rail has voided the key, and was never asked to.')
    : move(voidIntent);
}

type Stated = { readonly amountMinor: bigint; readonly currency: string };

function effectOfSettlement(state: PayoutState, fact: Stated): Effect {
  if (!isAmountSent(state, fact)) return mismatch(state, fact, 'settled');
  if (state.corrected === 'late payment') {
    return park('contradiction', lateAgain);
  }
  if (state.corrected === 'settlement') {
    return park('paid_after_release', 'The rail settled a payout whose settlement was undone.');
  }
  switch (state.status) {
    case 'processing':
      return move('sent', 'settled');
    case 'sent':
      return move('settled');
    case 'settled':
    case 'returned':
      return nothing;
    case 'failed':
    case 'canceled':
      return park('paid_after_release', `The rail settled a payout that is ${state.status}.`);
    case 'pending':
      return park('contradiction', 'The rail settled a payout that was never sent to it.');
  }
}

const lateAgain =
  'The rail settled a payout whose late payment two people have reversed. If it did pay, two people book ' +
  'that with corridor payouts correct.';

function effectOfRejection(status: PayoutStatus, code: string): Effect {
  if (isReleased(status)) return nothing;
  if (!isInFlight(status)) {
    return park('contradiction', `The rail rejected (${code}) a payout that is ${status}.`);
  }
  return isDuplicateCode(code)
    ? park(
        'contradiction',
        `The rail says that the order is a duplicate (${code}): it has another one ` +
          'under the key, and has not said what became of that.',
      )
    : move('failed');
}

function effectOfReturn(
  state: PayoutState,
  fact: Stated & { readonly isConfirmed?: boolean },
  rules: FactRules,
): Effect {
  if (differs(state, fact) || fact.amountMinor > state.receiveMinor) {
    return mismatch(state, fact, 'returned');
  }
  const { status } = state;
  const isShort = isShortReturn(state, fact, rules);
  switch (status) {
    case 'processing':
    case 'sent':
    case 'settled':
      if (isShort && fact.isConfirmed !== true) {
        return park('return_short', `The rail returned ${statedSum(fact)} of ${sentSum(state)}.`);
      }
      return status === 'processing' ? move('sent', 'returned') : move('returned');
    case 'returned':
      if (isReturnKnown(state, fact)) return nothing;
      return park(
        'contradiction',
        `The rail returned ${statedSum(fact)} of a payout; before, it returned ` +
          `${writtenSum(state.returnedMinor ?? 0n, state.destinationCurrency)}. Two people book a second return with ` +
          'corridor payouts correct.',
      );
    case 'pending':
    case 'failed':
    case 'canceled':
      return park(
        'contradiction',
        `The rail returned ${statedSum(fact)} of a payout that is ` +
          `${state.status}. Two people book what comes back of a late payment with ` +
          'corridor payouts late-return.',
      );
  }
}

/** Two returns cannot both exceed half, so an equal amount above half is the same one. After a correction it may be new. */
function isReturnKnown(state: PayoutState, { amountMinor }: Stated): boolean {
  const { returnedMinor, receiveMinor, corrected } = state;
  const isOnly = amountMinor === returnedMinor && amountMinor * 2n > receiveMinor;
  return isOnly && corrected === 'nothing';
}

type Sent = Pick<PayoutState, 'receiveMinor' | 'destinationCurrency'>;

/** Whether the rail reports the amount and the currency that were sent. */
export function isAmountSent({ receiveMinor, destinationCurrency }: Sent, fact: Stated): boolean {
  return fact.currency === destinationCurrency && fact.amountMinor === receiveMinor;
}

/** Whether so little came back that a person decides what it means. */
export function isShortReturn(
  { receiveMinor }: Pick<Sent, 'receiveMinor'>,
  { amountMinor }: Pick<Stated, 'amountMinor'>,
  { returnMinimumPercent }: FactRules,
): boolean {
  return amountMinor * 100n < receiveMinor * returnMinimumPercent;
}

function differs(state: PayoutState, fact: Stated): boolean {
  return fact.currency !== state.destinationCurrency || fact.amountMinor <= 0n;
}

function mismatch(state: PayoutState, fact: Stated, what: string): Effect {
  return park(
    'amount_mismatch',
    `The rail ${what} ${statedSum(fact)}; ${sentSum(state)} was sent.`,
  );
}

/** What the rail states, which may be no currency there is. */
export function statedSum({ amountMinor, currency }: Stated): string {
  return isCurrency(currency)
    ? writtenSum(amountMinor, currency)
    : `${amountMinor} ${currency} (minor units)`;
}

function sentSum({ receiveMinor, destinationCurrency }: Sent): string {
  return writtenSum(receiveMinor, destinationCurrency);
}

function move(...path: readonly PayoutStatus[]): Effect {
  return { kind: 'move', path };
}

function park(reason: AttentionReason, detail: string): Effect {
  return { kind: 'park', reason, detail };
}
