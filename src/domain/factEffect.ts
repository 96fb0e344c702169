import { isCurrency, type Sum, writtenSum } from './money.js';
import {
  type Attention,
  type AttentionReason,
  hasConflictingReports,
  isInFlight,
  isReleased,
  type PayoutStatus,
  type VoidOutcome,
} from './payout.js';
import type { RailReport } from './railReport.js';

type Returned = Extract<RailReport, { readonly kind: 'returned' }>;
type Rejected = Extract<RailReport, { readonly kind: 'rejected' }>;

/**
 * A fact about one transfer: a report of the rail, or one of three others. `withdrawn`: the order was
 * never submitted to the rail. `released`: an operator decided on closed statements that show no payment.
 * `voided`: the rail refuses the key permanently; the resulting status was stored on the payout before
 * the void was requested.
 */
export type PayoutFact =
  | Exclude<RailReport, Returned>
  /** `isConfirmed`: an operator has decided that the return ends the payout, however small it is. */
  | (Returned & { readonly isConfirmed?: boolean })
  | { readonly kind: 'voided' }
  | { readonly kind: 'released' }
  | { readonly kind: 'withdrawn' };

/**
 * ISO 20022 external status reasons with which a rail refuses a duplicate order. They say nothing about
 * the outcome of the first order, so they do not count as a rejection.
 */
export const duplicateCodes: ReadonlySet<string> = new Set([
  'AM05',
  'DUPL',
  'DU01',
  'DU02',
  'DU03',
  'DU04',
  'DU05',
]);

/** "Order cancelled" (ISO 20022): the code with which a rail refuses a voided key. */
export const orderCancelled = 'DS02';

/** The properties of a payout that determine the effect of a fact. */
export type PayoutState = {
  readonly status: PayoutStatus;
  readonly receiveMinor: bigint;
  readonly destinationCurrency: string;
  /** The amount already returned; null before a return. */
  readonly returnedMinor: bigint | null;
  /** Why the payout waits for an operator; null if it does not. */
  readonly attentionReason: AttentionReason | null;
  /** The final status that a void requested from the rail leads to; null if none was requested. */
  readonly voidIntent: VoidOutcome | null;
  /** The correction of its books by two people. A settlement or late payment named here was reversed. */
  readonly corrected: 'nothing' | 'settlement' | 'late payment' | 'other';
};

/** Configured rules about facts. */
export type FactRules = {
  /** A return of less than this percentage of the amount sent waits for an operator. */
  readonly returnMinimumPercent: bigint;
};

/** The effect of a fact: nothing, one or more moves, or parking for an operator. */
export type Effect =
  | { readonly kind: 'none' }
  | { readonly kind: 'move'; readonly path: readonly PayoutStatus[] }
  | ({ readonly kind: 'park' } & Attention);

const nothing: Effect = { kind: 'none' };

/**
 * The reducer of rail facts. Duplicate and reordered facts have no effect; for final payouts,
 * `storeRailEvents` duplicates that rule. A fact that contradicts the payout's state parks the payout and
 * posts nothing, except a payment after release: the step that applies the effect posts it to suspense.
 * While the rail's reports conflict, a fact that would move money is only added to the findings.
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
      return effectOfRejection(state, fact);
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

/**
 * A void has no effect on a released payout, and one that we requested ends a payout in `processing`.
 * Any other void is a contradiction.
 */
function effectOfVoid({ status, voidIntent }: PayoutState): Effect {
  if (isReleased(status)) return nothing;
  if (status !== 'processing') {
    return park('contradiction', `The rail has voided the key of a payout that is ${status}.`);
  }
  return voidIntent === null
    ? park('contradiction', 'The rail has voided the key, and was never asked to.')
    : move(voidIntent);
}

function effectOfSettlement(state: PayoutState, fact: Sum): Effect {
  if (!isAmountSent(state, fact)) return mismatch(state, fact, 'settled');
  if (state.corrected === 'late payment') return park('contradiction', lateAgain);
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

function effectOfRejection(state: PayoutState, fact: Rejected): Effect {
  const { status, voidIntent } = state;
  const { code } = fact;
  if (isReleased(status)) return nothing;
  if (!isInFlight(status)) {
    return park('contradiction', `The rail rejected (${code}) a payout that is ${status}.`);
  }
  // It may be about another order.
  if ('amountMinor' in fact && !isAmountSent(state, fact)) return mismatch(state, fact, 'rejected');
  // The rail reports our void by itself, perhaps before the answer to it is recorded.
  if (code === orderCancelled && status === 'processing') return move(voidIntent ?? 'failed');
  return duplicateCodes.has(code)
    ? park(
        'contradiction',
        `The rail says that the order is a duplicate (${code}): it has another one ` +
          'under the key, and has not said what became of that.',
      )
    : move('failed');
}

function effectOfReturn(
  state: PayoutState,
  fact: Sum & { readonly isConfirmed?: boolean },
  rules: FactRules,
): Effect {
  if (!isBookable(state, fact)) return mismatch(state, fact, 'returned');
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

/** Whether a return is a duplicate: two returns cannot both exceed half. After a correction it may be new. */
function isReturnKnown(state: PayoutState, { amountMinor }: Sum): boolean {
  const { returnedMinor, receiveMinor, corrected } = state;
  const isOnly = amountMinor === returnedMinor && amountMinor * 2n > receiveMinor;
  return isOnly && corrected === 'nothing';
}

type Sent = Pick<PayoutState, 'receiveMinor' | 'destinationCurrency'>;

/** Whether the rail reports the amount and the currency that were sent. */
export function isAmountSent({ receiveMinor, destinationCurrency }: Sent, fact: Sum): boolean {
  return fact.currency === destinationCurrency && fact.amountMinor === receiveMinor;
}

/** Whether the returned amount is so small that an operator has to decide what the return means. */
export function isShortReturn(sent: Sent, fact: Sum, rules: FactRules): boolean {
  return fact.amountMinor * 100n < sent.receiveMinor * rules.returnMinimumPercent;
}

/** Whether a return can be booked: in the currency that was sent, and of no more than was sent. */
export function isBookable(sent: Sent, { amountMinor, currency }: Sum): boolean {
  const isWithin = amountMinor > 0n && amountMinor <= sent.receiveMinor;
  return isWithin && currency === sent.destinationCurrency;
}

function mismatch(state: PayoutState, fact: Sum, what: string): Effect {
  return park(
    'amount_mismatch',
    `The rail ${what} ${statedSum(fact)}; ${sentSum(state)} was sent.`,
  );
}

/** Formats an amount that the rail states. Its currency may not exist. */
export function statedSum({ amountMinor, currency }: Sum): string {
  return isCurrency(currency)
    ? writtenSum(amountMinor, currency)
    : `${amountMinor} ${currency} (minor units)`;
}

/** Formats the amount that was sent. */
export function sentSum({ receiveMinor, destinationCurrency }: Sent): string {
  return writtenSum(receiveMinor, destinationCurrency);
}

const move = (...path: readonly PayoutStatus[]): Effect => ({ kind: 'move', path });

function park(reason: AttentionReason, detail: string): Effect {
  return { kind: 'park', reason, detail };
}
