import {
  type AcceptedAmounts,
  chargeSuspenseEntry,
  type Entry,
  type EntryKind,
  lateReturnEntry,
  type PostedEntry,
  reversalOf,
  sumOn,
  writeOffEntry,
} from './ledger.js';
import { max, writtenSum } from './money.js';
import type { Correction } from './operator.js';

/** Entries of a payout that are not reversed: holds follow its state. Nor is an entry that reverses another. */
const ofHolds: readonly EntryKind[] = ['accept', 'release'];

/** Maximum number of postings: an entry holds at most 16 transfers, and n postings need at most n - 1. */
const mostPostings = 16;

/**
 * Returns the entry that corrects a payout's books, or a sentence saying why none can be made. Money in
 * suspense may be returned, charged or written off, but never more than is there.
 */
export function correctionOf(
  correction: Correction,
  amounts: AcceptedAmounts,
  posted: readonly PostedEntry[],
): Entry | string {
  const currency = amounts.destinationCurrency;
  const missingMinor = max(-sumOn(posted, 'suspense', currency), 0n);
  const entry = entryOf(correction, amounts, posted, missingMinor);
  if (typeof entry === 'string') return entry;
  if (entry.postings.length === 0) return 'There is nothing to book.';
  const isTooMuch = sumOn([entry], 'suspense', currency) > missingMinor;
  if (!isTooMuch || correction.kind === 'book') return entry;
  const rest = correction.kind === 'clearSuspense' ? ' Write it off with --charge house.' : '';
  return `Only ${writtenSum(missingMinor, currency)} is in suspense.${rest}`;
}

function entryOf(
  correction: Correction,
  amounts: AcceptedAmounts,
  posted: readonly PostedEntry[],
  missingMinor: bigint,
): Entry | string {
  const { sourceCurrency: source, destinationCurrency: currency } = amounts;
  switch (correction.kind) {
    case 'lateReturn':
      return lateReturnEntry(currency, BigInt(correction.amountMinor));
    case 'clearSuspense':
      return correction.charge === 'house'
        ? writeOffEntry(currency, missingMinor)
        : chargeSuspenseEntry(amounts);
    case 'reverse': {
      const isReversed = ({ id }: PostedEntry) => posted.some(({ reverses }) => reverses === id);
      const entry = posted.find(({ id }) => String(id) === correction.entry);
      const isReturned = posted.some((each) => each.kind === 'return' && !isReversed(each));
      if (entry?.kind === 'settle' && isReturned) {
        return 'The customer already has the returned amount: reverse the return first.';
      }
      const mayReverse = entry !== undefined && !ofHolds.includes(entry.kind);
      return mayReverse && entry.reverses === undefined && !isReversed(entry)
        ? reversalOf(entry)
        : `${correction.entry} is not an entry of this payout that can be reversed, or has been reversed already.`;
    }
    case 'book': {
      const postings = correction.postings.map((posting) => ({
        ...posting,
        amountMinor: BigInt(posting.amountMinor),
      }));
      if (postings.length > mostPostings) return `An entry has at most ${mostPostings} postings.`;
      const expected = {
        available: source,
        held: source,
        rail_settlement: currency,
        suspense: currency,
      };
      const mismatch = Object.entries(expected).find(([name, wanted]) =>
        postings.some((posting) => posting.account === name && posting.currency !== wanted),
      );
      if (mismatch !== undefined) return `A posting to ${mismatch[0]} has to be in ${mismatch[1]}.`;
      const places = postings.map((posting) => `${posting.account} in ${posting.currency}`);
      const twice = places.find((place, index) => places.indexOf(place) !== index);
      return twice === undefined
        ? { kind: 'correction', postings }
        : `${twice} is named twice: expected one posting with the sum.`;
    }
  }
}
