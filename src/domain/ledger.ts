import { convertFloor } from './fx.js';
import type { Sum } from './money.js';
import type { Price, PriceRequest } from './quote.js';

/** The ledger accounts. The first two exist once per customer, the others once per mode. */
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

/** One leg of an entry. A positive amount is added to the account, a negative one is taken from it. */
export type Posting = Sum & { readonly account: LedgerAccount };

/** An amount moved from one account to another: a debit and its credit. */
export type Transfer = Sum & { readonly from: LedgerAccount; readonly to: LedgerAccount };

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

/** A balanced set of postings, written atomically. */
export type Entry = {
  readonly kind: EntryKind;
  readonly postings: readonly Posting[];
  /** For a correction that is a reversal: the id of the entry that it reverses. */
  readonly reverses?: bigint;
};

export type PostedEntry = Entry & { readonly id: bigint };

/** The amounts with which a payout was accepted. All its later entries are derived from them. */
export type AcceptedAmounts = Omit<Price, 'mid'> &
  Pick<PriceRequest, 'sourceCurrency' | 'destinationCurrency'>;

/** Credits a test account. The `funding` account balances the credit. */
export function fundEntry(currency: string, amountMinor: bigint): Entry {
  return entry('fund', [leg('funding', 'available', currency, amountMinor)]);
}

/** Holds the whole amount including the fee. No revenue is posted yet. */
export function acceptEntry(amounts: AcceptedAmounts): Entry {
  return entry('accept', [leg('available', 'held', amounts.sourceCurrency, amounts.sourceMinor)]);
}

/** Captures the hold as fee and position, and posts the receive amount that the rail has paid. */
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

/** Releases the hold in full after a payout failed or was canceled. */
export function releaseEntry(amounts: AcceptedAmounts): Entry {
  return entry('release', [leg('held', 'available', amounts.sourceCurrency, amounts.sourceMinor)]);
}

/**
 * Posts money returned by the receiving side. The customer is credited the net amount and we keep the fee.
 * If the receiving side deducted something, the deduction is our cost.
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

/** Posts a payment that the rail made after the hold was released to suspense, until an operator decides. */
export function latePaymentEntry(amounts: AcceptedAmounts): Entry {
  return entry('late_payment', [
    leg('suspense', 'rail_settlement', amounts.destinationCurrency, amounts.receiveMinor),
  ]);
}

/** Posts the return of a late payment, or of a part of it, from the receiving side. */
export function lateReturnEntry(currency: string, returnedMinor: bigint): Entry {
  return entry('late_return', [leg('rail_settlement', 'suspense', currency, returnedMinor)]);
}

/** Charges a late payment to the customer, whose hold was released, as if the payout had settled. */
export function chargeSuspenseEntry(amounts: AcceptedAmounts): Entry {
  return entry('suspense_clear', settlement(amounts, 'available', 'suspense'));
}

/** Writes off the remaining amount in suspense as a loss. */
export function writeOffEntry(currency: string, missingMinor: bigint): Entry {
  return entry('suspense_clear', [leg('losses', 'suspense', currency, missingMinor)]);
}

/** Reverses an entry. A settlement's hold no longer exists, so its reversal credits `available`. */
export function reversalOf(posted: PostedEntry): Entry {
  const postings = posted.postings.map(({ account, currency, amountMinor }) => ({
    account: posted.kind === 'settle' && account === 'held' ? 'available' : account,
    currency,
    amountMinor: -amountMinor,
  }));
  return { kind: 'correction', postings, reverses: posted.id };
}

/** Returns an account's balance from entries. Negative in suspense: paid, but not charged to any customer. */
export function sumOn(entries: readonly Entry[], account: LedgerAccount, currency: string): bigint {
  return entries
    .flatMap(({ postings }) => postings)
    .filter((posting) => posting.account === account && posting.currency === currency)
    .reduce((sum, { amountMinor }) => sum + amountMinor, 0n);
}

/**
 * Returns our margin. The spread is the value at the mid rate minus the value at our rate; the rounding is
 * the value at our rate minus the receive amount.
 */
function marginOf(amounts: AcceptedAmounts): { spreadMinor: bigint; roundingMinor: bigint } {
  const { netMinor, sourceCurrency, destinationCurrency, rate } = amounts;
  const atRateMinor = convertFloor(netMinor, sourceCurrency, destinationCurrency, rate);
  return {
    spreadMinor: amounts.midValueMinor - atRateMinor,
    roundingMinor: atRateMinor - amounts.receiveMinor,
  };
}

/**
 * Converts the postings of an entry to transfers by matching debits with credits in order. Entries made
 * here list their postings in pairs; an entry booked by an operator may require splitting an amount.
 *
 * @throws Error if the entry does not balance in one of its currencies
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
