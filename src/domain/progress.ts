import { effectOf, type FactRules, type PayoutFact, type PayoutState } from './factEffect.js';
import {
  type AcceptedAmounts,
  type Entry,
  latePaymentEntry,
  releaseEntry,
  returnEntry,
  settleEntry,
} from './ledger.js';
import { type Attention, isFinal, type PayoutStatus, withAttention } from './payout.js';

/** One move of a payout, with the details recorded along with it. */
export type Move = {
  readonly status: PayoutStatus;
  readonly statusReason: string | null;
  readonly railReference: string | null;
  readonly returnedMinor: bigint | null;
  /** By the rail's clock, ISO 8601; null if the rail stated no time. */
  readonly settledAt: string | null;
};

/** The cancellation of an undecided payout, which has no hold and was never submitted to a rail. */
export const undecidedCancellation = moveTo('canceled', { kind: 'withdrawn' });

/** The combined effect of a list of facts on one payout, in order. */
export type Progress = {
  readonly moves: readonly Move[];
  readonly entries: readonly Entry[];
  /** Attention that the facts require, in addition to what the payout already waits for. */
  readonly attention: Attention | null;
  /** The outcome of each fact, by position. The inbox stores it for later readers. */
  readonly outcomes: readonly string[];
};

/** Applies facts in order and returns the moves, ledger entries and attention. It has no side effects. */
export function progressOf(
  payout: AcceptedAmounts & PayoutState,
  facts: readonly PayoutFact[],
  rules: FactRules,
): Progress {
  const moves: Move[] = [];
  const entries: Entry[] = [];
  const outcomes: string[] = [];
  let attention: Attention | null = null;
  let { status, returnedMinor } = payout;
  for (const fact of facts) {
    const attentionReason = attention?.reason ?? payout.attentionReason;
    const effect = effectOf({ ...payout, status, returnedMinor, attentionReason }, fact, rules);
    switch (effect.kind) {
      case 'none':
        outcomes.push('nothing new');
        break;
      case 'park':
        attention = withAttention(attention, { reason: effect.reason, detail: effect.detail });
        // The rail may report the same payment after release twice, so it is posted once.
        if (
          effect.reason === 'paid_after_release' &&
          !entries.some(({ kind }) => kind === 'late_payment')
        ) {
          entries.push(latePaymentEntry(payout));
        }
        outcomes.push(effect.reason);
        break;
      case 'move':
        for (const next of effect.path) {
          entries.push(...entriesOf(payout, status, next, fact));
          const move = moveTo(next, fact);
          moves.push(move);
          status = next;
          returnedMinor = move.returnedMinor;
        }
        outcomes.push(status);
        break;
    }
  }
  return { moves, entries, attention, outcomes };
}

function entriesOf(
  payout: AcceptedAmounts,
  from: PayoutStatus,
  to: PayoutStatus,
  fact: PayoutFact,
): readonly Entry[] {
  switch (to) {
    case 'settled':
      return [settleEntry(payout)];
    case 'failed':
    case 'canceled':
      return [releaseEntry(payout)];
    case 'returned': {
      if (fact.kind !== 'returned') throw new Error(`A ${fact.kind} fact cannot return a payout.`);
      const back = returnEntry(payout, fact.amountMinor);
      return from === 'settled' ? [back] : [settleEntry(payout), back];
    }
    case 'pending':
    case 'processing':
    case 'sent':
      return [];
  }
}

function moveTo(status: PayoutStatus, fact: PayoutFact): Move {
  return {
    status,
    statusReason: isFinal(status) ? reasonOf(status, fact) : null,
    railReference: fact.kind === 'accepted' ? fact.reference : null,
    returnedMinor: status === 'returned' && fact.kind === 'returned' ? fact.amountMinor : null,
    settledAt: status === 'settled' && fact.kind === 'settled' ? (fact.at ?? null) : null,
  };
}

/** Returns the stable reason code of a final status: the rail's, or ours if we ended the payout. */
function reasonOf(status: PayoutStatus, fact: PayoutFact): string | null {
  if (status === 'canceled') return 'canceled';
  if (fact.kind === 'rejected' || fact.kind === 'returned') return fact.code;
  return fact.kind === 'settled' || fact.kind === 'accepted' ? null : 'released_by_operator';
}
