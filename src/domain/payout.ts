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

/** Final for the payout's own workflow; a return may still follow a settlement. */
export function isFinal(status: PayoutStatus): boolean {
  return status !== 'pending' && status !== 'processing' && status !== 'sent';
}

/** Why a payout waits for a person. It stands beside the state and never replaces it. */
export const attentionReasons = {
  amount_mismatch: 'The rail reports another amount or currency than was sent.',
  contradiction: 'The rail reports something that contradicts what it reported before.',
  paid_after_release: 'The rail paid although the hold was released; the money is in suspense.',
  outcome_unknown: 'The rail gives no definite answer, and its key can no longer be repeated.',
  settle_by_passed: 'The rail has confirmed neither settlement nor failure in its time.',
  unexpected_failure: 'A step failed in a way the workflow has no answer to.',
} as const;

export type AttentionReason = keyof typeof attentionReasons;

/** The rail's key of a payout: derived, never random, so that a repeat is the same order. */
export function railKey(payoutId: string): string {
  return payoutId;
}

/**
 * What a rail says of one transfer: by callback, by poll or by statement. `voided` means that
 * it will refuse the key for ever, because we asked it to; the outcome is what we asked for.
 */
export type RailFact =
  | { readonly kind: 'accepted'; readonly reference: string | null }
  | { readonly kind: 'settled'; readonly amountMinor: bigint; readonly currency: string }
  | { readonly kind: 'rejected'; readonly code: string; readonly reason: string }
  | {
      readonly kind: 'returned';
      readonly amountMinor: bigint;
      readonly currency: string;
      readonly code: string;
      readonly reason: string;
    }
  | { readonly kind: 'voided'; readonly outcome: 'canceled' | 'failed'; readonly code: string };

/** Where a payout stands, as far as a rail's fact is judged by it. */
export type Standing = {
  readonly status: PayoutStatus;
  readonly receiveMinor: bigint;
  readonly destinationCurrency: string;
  /** What has come back already, null before a return. */
  readonly returnedMinor: bigint | null;
};

/** What a fact does: nothing, a path of one or more moves, or a case for a person. */
export type Effect =
  | { readonly kind: 'none' }
  | { readonly kind: 'move'; readonly path: readonly PayoutStatus[] }
  | { readonly kind: 'park'; readonly reason: AttentionReason; readonly detail: string };

const nothing: Effect = { kind: 'none' };

/**
 * The one reducer of rail facts. Duplicates and reordering change nothing; a fact that
 * cannot be true together with the payout's state parks it and posts nothing, but for a
 * payment after release, which is booked to suspense by whoever applies the effect.
 */
export function effectOf(standing: Standing, fact: RailFact): Effect {
  switch (fact.kind) {
    case 'accepted':
      return standing.status === 'processing' ? move('sent') : nothing;
    case 'settled':
      return effectOfSettlement(standing, fact);
    case 'rejected':
      return effectOfRejection(standing.status, fact);
    case 'returned':
      return effectOfReturn(standing, fact);
    case 'voided':
      // Only who has made sure that the rail will not pay brings this fact.
      return nextStatuses[standing.status].some((next) => next === fact.outcome)
        ? move(fact.outcome)
        : nothing;
  }
}

type Stated = { readonly amountMinor: bigint; readonly currency: string };

function effectOfSettlement(standing: Standing, fact: Stated): Effect {
  if (differs(standing, fact) || fact.amountMinor !== standing.receiveMinor) {
    return mismatch(standing, fact, 'settled');
  }
  switch (standing.status) {
    case 'processing':
      return move('sent', 'settled');
    case 'sent':
      return move('settled');
    case 'settled':
    case 'returned':
      return nothing;
    case 'failed':
    case 'canceled':
      return park('paid_after_release', `The rail settled a payout that is ${standing.status}.`);
    case 'pending':
      return park('contradiction', 'The rail settled a payout that was never sent to it.');
  }
}

function effectOfRejection(status: PayoutStatus, fact: { readonly code: string }): Effect {
  switch (status) {
    case 'processing':
    case 'sent':
      return move('failed');
    case 'failed':
    case 'canceled':
      return nothing;
    case 'pending':
    case 'settled':
    case 'returned':
      return park('contradiction', `The rail rejected (${fact.code}) a payout that is ${status}.`);
  }
}

function effectOfReturn(standing: Standing, fact: Stated): Effect {
  if (differs(standing, fact) || fact.amountMinor > standing.receiveMinor) {
    return mismatch(standing, fact, 'returned');
  }
  switch (standing.status) {
    case 'processing':
      return move('sent', 'returned');
    case 'sent':
    case 'settled':
      return move('returned');
    case 'returned':
      if (fact.amountMinor === standing.returnedMinor) return nothing;
      return park(
        'contradiction',
        `The rail returned ${fact.amountMinor} ${fact.currency} (minor units) of a payout; ` +
          `before, it returned ${standing.returnedMinor}.`,
      );
    case 'pending':
    case 'failed':
    case 'canceled':
      return park('contradiction', `The rail returned a payout that is ${standing.status}.`);
  }
}

function differs(standing: Standing, fact: Stated): boolean {
  return fact.currency !== standing.destinationCurrency || fact.amountMinor <= 0n;
}

function mismatch(standing: Standing, fact: Stated, what: string): Effect {
  return park(
    'amount_mismatch',
    `The rail ${what} ${fact.amountMinor} ${fact.currency} (minor units); ` +
      `${standing.receiveMinor} ${standing.destinationCurrency} was sent.`,
  );
}

function move(...path: readonly PayoutStatus[]): Effect {
  return { kind: 'move', path };
}

function park(reason: AttentionReason, detail: string): Effect {
  return { kind: 'park', reason, detail };
}
