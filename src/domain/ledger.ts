import { convertFloor } from './fx.js';
import type { Price, PriceRequest } from './quote.js';

/** The accounts of the ledger; the first two exist for each customer, the rest once a mode. */
export const ledgerAccounts = [
  'available',
  'held',
  'funding',
  'fx_position',
  'rail_settlement',
  'fee_revenue',
  'spread_revenue',
  'rounding',
  'return_costs',
  'suspense',
  'losses',
] as const;
export type LedgerAccount = (typeof ledgerAccounts)[number];

/** One leg of an entry: positive arrives on the account, negative leaves it. */
export type Posting = {
  readonly account: LedgerAccount;
  readonly currency: string;
  readonly amountMinor: bigint;
};

/** An amount that leaves one account and arrives on another: a debit and its credit. */
export type Transfer = Omit<Posting, 'account'> & {
  readonly from: LedgerAccount;
  readonly to: LedgerAccount;
};

export const entryKinds = [
  'fund',
  'accept',
  'settle',
  'release',
  'return',
  'late_payment',
  'late_return',
  'suspense_clear',
  'correction',
] as const;
export type EntryKind = (typeof entryKinds)[number];

/** One balanced set of postings, written together or not at all. */
export type Entry = {
  readonly kind: EntryKind;
  readonly postings: readonly Posting[];
  /** Of a correction: the entry that it undoes. */
  readonly reverses?: bigint;
};

export type PostedEntry = Entry & { readonly id: bigint };

/** The amounts a payout was accepted with: all that it will ever post. */
export type AcceptedAmounts = Omit<Price, 'mid'> &
  Pick<PriceRequest, 'sourceCurrency' | 'destinationCurrency'>;

/** Money put on a test account: it has to come from somewhere, so it comes from funding. */
export function fundEntry(currency: string, amountMinor: bigint): Entry {
  return entry('fund', [leg('funding', 'available', currency, amountMinor)]);
}

/** The whole amount, fee included, is held; nothing is earned yet. */
export function acceptEntry(amounts: AcceptedAmounts): Entry {
  return entry('accept', [leg('available', 'held', amounts.sourceCurrency, amounts.sourceMinor)]);
}

/** The hold becomes the fee and our position; the rail has paid the receive amount. */
export function settleEntry(amounts: AcceptedAmounts): Entry {
  return entry('settle', settlement(amounts, 'held', 'rail_settlement'));
}

function settlement(amounts: AcceptedAmounts, payer: LedgerAccount, paid: LedgerAccount) {
  const { sourceCurrency: source, destinationCurrency: destination } = amounts;
  const margin = marginOf(amounts);
  return [
    leg(payer, 'fx_position', source, amounts.netMinor),
    leg(payer, 'fee_revenue', source, amounts.feeMinor),
    leg('fx_position', paid, destination, amounts.receiveMinor),
    leg('fx_position', 'spread_revenue', destination, margin.spreadMinor),
    leg('fx_position', 'rounding', destination, margin.roundingMinor),
  ];
}

/** A hold that is given back in full, where a payout failed or was canceled. */
export function releaseEntry(amounts: AcceptedAmounts): Entry {
  return entry('release', [leg('held', 'available', amounts.sourceCurrency, amounts.sourceMinor)]);
}

/**
 * Money that came back from the receiving side: the customer gets the net amount, the fee
 * is kept, and what the receiving side kept for itself is our cost.
 */
export function returnEntry(amounts: AcceptedAmounts, returnedMinor: bigint): Entry {
  const { sourceCurrency: source, destinationCurrency: destination } = amounts;
  const margin = marginOf(amounts);
  return entry('return', [
    leg('fx_position', 'available', source, amounts.netMinor),
    leg('rail_settlement', 'fx_position', destination, returnedMinor),
    leg('return_costs', 'fx_position', destination, amounts.receiveMinor - returnedMinor),
    leg('spread_revenue', 'fx_position', destination, margin.spreadMinor),
    leg('rounding', 'fx_position', destination, margin.roundingMinor),
  ]);
}

/** The rail paid after the hold was released: kept in suspense until a person decides. */
export function latePaymentEntry(amounts: AcceptedAmounts): Entry {
  return entry('late_payment', [
    leg('suspense', 'rail_settlement', amounts.destinationCurrency, amounts.receiveMinor),
  ]);
}

/** The money of a late payment, or part of it, is back at the rail. */
export function lateReturnEntry(currency: string, returnedMinor: bigint): Entry {
  return entry('late_return', [leg('rail_settlement', 'suspense', currency, returnedMinor)]);
}

/** Charges the late payment to the customer, whose hold was released, as if it had settled. */
export function chargeSuspenseEntry(amounts: AcceptedAmounts): Entry {
  return entry('suspense_clear', settlement(amounts, 'available', 'suspense'));
}

/** What is left in suspense will not come back: it is lost. */
export function writeOffEntry(currency: string, missingMinor: bigint): Entry {
  return entry('suspense_clear', [leg('losses', 'suspense', currency, missingMinor)]);
}

/** Undoes an entry. The hold of a settlement no longer exists, so its reversal credits `available`. */
export function reversalOf(posted: PostedEntry): Entry {
  const postings = posted.postings.map(({ account, currency, amountMinor }) => ({
    account: posted.kind === 'settle' && account === 'held' ? 'available' : account,
    currency,
    amountMinor: -amountMinor,
  }));
  return { kind: 'correction', postings, reverses: posted.id };
}

/** What entries leave on an account; below zero in suspense, we have paid money that no customer was charged. */
export function sumOn(entries: readonly Entry[], account: LedgerAccount, currency: string): bigint {
  return entries
    .flatMap(({ postings }) => postings)
    .filter((posting) => posting.account === account && posting.currency === currency)
    .reduce((sum, { amountMinor }) => sum + amountMinor, 0n);
}

/** Spread is the value at the mid rate less that at our rate; rounding, what flooring the latter leaves. */
function marginOf(amounts: AcceptedAmounts): { spreadMinor: bigint; roundingMinor: bigint } {
  const { netMinor, sourceCurrency, destinationCurrency, rate } = amounts;
  const atRateMinor = convertFloor(netMinor, sourceCurrency, destinationCurrency, rate);
  return {
    spreadMinor: amounts.midValueMinor - atRateMinor,
    roundingMinor: atRateMinor - amounts.receiveMinor,
  };
}

/**
 * The postings of an entry as transfers: what leaves is matched with what arrives, in their order.
 * An entry of ours lists them in pairs; what an operator books may need an amount to be split.
 *
 * @throws Error when the entry does not balance in one of its currencies
 */
export function transfersOf({ kind, postings }: Entry): readonly Transfer[] {
  const transfers: Transfer[] = [];
  const arriving = postings.map((posting) => ({ ...posting, leftMinor: posting.amountMinor }));
  const unbalanced = (of: string) => new Error(`A ${kind} entry does not balance in ${of}.`);
  for (const { account: from, currency, amountMinor } of postings) {
    for (let leavingMinor = -amountMinor; leavingMinor > 0n; ) {
      const to = arriving.find((each) => each.currency === currency && each.leftMinor > 0n);
      if (to === undefined) throw unbalanced(currency);
      const restMinor = leavingMinor - to.leftMinor;
      const movedMinor = restMinor > 0n ? to.leftMinor : leavingMinor;
      transfers.push({ from, to: to.account, currency, amountMinor: movedMinor });
      leavingMinor = restMinor;
      to.leftMinor -= movedMinor;
    }
  }
  for (const { currency, leftMinor } of arriving) if (leftMinor > 0n) throw unbalanced(currency);
  return transfers;
}

type Leg = readonly [Posting, Posting];

function leg(from: LedgerAccount, to: LedgerAccount, currency: string, amountMinor: bigint): Leg {
  if (amountMinor < 0n) {
    throw new Error(`A leg from ${from} to ${to} cannot be negative: ${amountMinor} ${currency}`);
  }
  return [
    { account: from, currency, amountMinor: -amountMinor },
    { account: to, currency, amountMinor },
  ];
}

function entry(kind: EntryKind, legs: readonly Leg[]): Entry {
  return { kind, postings: legs.flat().filter((posting) => posting.amountMinor !== 0n) };
}
