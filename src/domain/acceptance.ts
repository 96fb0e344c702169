import { type AccountState, refuseState } from './accountState.js';
import { type Opening, refuseClosed } from './corridor.js';
import { formatSum } from './money.js';
import { endedUnpaid, type PayoutStatus } from './payout.js';
import { type FixedSide, type Price, type PriceInput, type PriceRequest, price } from './quote.js';
import { isRefusal, type Refusal, refuse } from './refusal.js';
import {
  type LimitUse,
  type PayeeDelay,
  type PayeeDetails,
  refuseNewPayee,
  refuseOverLimit,
} from './sendingLimits.js';

/**
 * Maximum time between a request at a held rate (of a quote or a batch) and its acceptance. The caller
 * was promised the rate for 30 seconds; holding it through a backlog of more than five minutes would give
 * the caller a free option on the market.
 */
export const heldRateMaximumAgeMs = 5 * 60 * 1000;

/** The terms that the caller requested: either a quote, or the live rate with its own parameters. */
export type PayoutTerms = {
  readonly quoteId: string | null;
  readonly beneficiaryId: string;
  readonly sourceCurrency: string | null;
  readonly destinationCurrency: string | null;
  readonly fixedSide: FixedSide | null;
  readonly amount: bigint | null;
};

/** The requested terms, and the other properties of the request that affect its price. */
export type PayoutRequest = PayoutTerms & {
  /** Set on an item of a batch. Items are priced at the rates of the batch's request. */
  readonly batchId: string | null;
  /**
   * Age of the request: the larger of the ages measured by the database and by the workflow. Each
   * is the difference of two times on the same clock.
   */
  readonly ageMs: number;
};

/** The present state of a quote whose row is locked. */
export type LockedQuote = Acceptance & {
  readonly usedBy: string | null;
  /** Whether the payout was requested strictly before the quote's `expires_at`. */
  readonly inTime: boolean;
};

/** The facts that the price depends on; `undefined` means that the account has no such object. */
export type PriceFacts = {
  readonly quote: LockedQuote | undefined;
  readonly beneficiary: (PayeeDetails & { readonly currency: string }) | undefined;
  readonly openings: readonly Opening[];
  readonly pairOf: (source: string, destination: string) => Pick<PriceRequest, 'mid' | 'corridor'>;
};

export type Acceptance = Price & PriceInput;

/**
 * The first half of the decision, which needs no balance. Returns the payout's amounts or a refusal. The
 * checks run in the order in which a caller can correct the faults.
 */
export function priceOf(request: PayoutRequest, facts: PriceFacts): Acceptance | Refusal {
  const isLive = request.quoteId === null;
  const priced = isLive ? livePrice(request, facts) : quotedPrice(request, facts);
  if (isRefusal(priced)) return priced;
  const { sourceCurrency, destinationCurrency } = priced;
  const pairParam = isLive ? 'destination_currency' : 'quote';
  const closed = refuseClosed(facts.openings, sourceCurrency, destinationCurrency, pairParam);
  if (closed !== undefined) return closed;
  if (facts.beneficiary === undefined) return notFound('beneficiary', 'bnf', request.beneficiaryId);
  const receives = facts.beneficiary.currency;
  if (receives !== destinationCurrency) {
    const expected = `${receives}, the currency of the beneficiary`;
    return refuse('currency_mismatch', {
      param: pairParam,
      expected: isLive ? expected : `a quote to ${expected}`,
      received: destinationCurrency,
    });
  }
  return priced;
}

/** A payout after the first half of the decision, or one that had already been refused. */
export type PricedPayout = {
  readonly id: string;
  readonly request: PayoutRequest;
  readonly facts: Pick<PriceFacts, 'beneficiary'>;
  readonly priced: Acceptance | Refusal;
};

/** The state, balances and limits that determine how much an account may send, and to whom. */
export type Funds = {
  readonly state: AccountState;
  /** Available balance by source currency, in minor units. */
  readonly available: ReadonlyMap<string, bigint>;
  /** Limits by source currency, including those of its corridors. Currencies without limits are absent. */
  readonly limitUses: ReadonlyMap<string, readonly LimitUse[]>;
  readonly payeeDelays: readonly PayeeDelay[];
};

/**
 * The second half of the decision. Payouts of an open account are decided in list order: each is accepted
 * if the limits and the balance left by earlier payouts cover it and none of them has used its quote.
 *
 * @param funds the account's funds, which the caller has locked
 * @returns a result for each payout, in the same order
 */
export function fundInOrder(
  payouts: readonly PricedPayout[],
  { state, available, limitUses, payeeDelays }: Funds,
): readonly (Acceptance | Refusal)[] {
  const stopped = refuseState(state);
  const left = new Map(available);
  const takenTo = new Map<string, bigint>();
  const usedBy = new Map<string, string>();
  return payouts.map(({ id, request, facts, priced }) => {
    if (isRefusal(priced)) return priced;
    if (stopped !== undefined) return stopped;
    const earlier = usedBy.get(request.quoteId ?? '');
    if (earlier !== undefined) return quoteUsed(request, earlier);
    const { sourceCurrency, destinationCurrency } = priced;
    const corridor = `${sourceCurrency} ${destinationCurrency}`;
    const availableMinor = left.get(sourceCurrency) ?? 0n;
    const takenMinor = {
      ofCurrency: (available.get(sourceCurrency) ?? 0n) - availableMinor,
      ofCorridor: takenTo.get(corridor) ?? 0n,
    };
    const limits = limitUses.get(sourceCurrency) ?? [];
    const param = payingParam(request);
    const overLimit =
      refuseNewPayee(payeeDelays, priced, facts.beneficiary, param) ??
      refuseOverLimit(limits, priced, takenMinor, param);
    if (overLimit !== undefined) return overLimit;
    if (availableMinor < priced.sourceMinor) return lacksFunds(request, priced, availableMinor);
    left.set(sourceCurrency, availableMinor - priced.sourceMinor);
    takenTo.set(corridor, takenMinor.ofCorridor + priced.sourceMinor);
    if (request.quoteId !== null) usedBy.set(request.quoteId, id);
    return priced;
  });
}

/** The payout that a retry refers to, with what decides whether it may be retried. */
export type RetriedPayout = {
  readonly id: string;
  readonly status: PayoutStatus;
  /** The payout that retries this one. */
  readonly retriedBy: string | null;
  /** Whether the bank may have paid: facts or a case are still open, or the books show a late payment. */
  readonly mayBePaid: boolean;
};

/**
 * Refuses to retry a payout that has not ended unpaid or was retried before: a second retry could pay
 * twice. Checked at the request and again at the decision, because the bank may report in between.
 *
 * @param by the id of the payout that is the retry
 */
export function refuseRetry(
  by: string,
  { id, status, retriedBy, mayBePaid }: RetriedPayout,
): Refusal | undefined {
  const refused = (detail: string) =>
    refuse('retry_refused', { ...retryExpected, received: id, detail });
  if (retriedBy !== null && retriedBy !== by) {
    return refused(`${id} was retried by ${retriedBy}. Retry ${retriedBy} if it failed.`);
  }
  if (!endedUnpaid(status)) {
    return refused(
      `${id} is ${status}: retry a payout only after it failed, was canceled or was returned.`,
    );
  }
  const detail = `The bank may have paid ${id} or an earlier payout that ${id} retries: contact the operator of the service.`;
  return mayBePaid ? refused(detail) : undefined;
}

/** The description of a valid `retry_of`, for refusals. */
export const retryExpected = {
  param: 'retry_of',
  expected:
    'a payout of this account that failed, was canceled or was returned, and was not retried yet',
} as const;

/** Returns the name of the parameter that determines the amount paid. */
const payingParam = ({ quoteId }: PayoutRequest) => (quoteId === null ? 'amount' : 'quote');

function lacksFunds(request: PayoutRequest, priced: Acceptance, availableMinor: bigint): Refusal {
  const { sourceCurrency, sourceMinor } = priced;
  const available = formatSum(availableMinor, sourceCurrency);
  const received = formatSum(sourceMinor, sourceCurrency);
  return refuse('insufficient_funds', {
    param: payingParam(request),
    expected: `at most ${available}, the available balance`,
    received,
    detail: `${available} is available; this payout needs ${received}. Add funds first.`,
  });
}

function quotedPrice(request: PayoutRequest, { quote }: PriceFacts): Acceptance | Refusal {
  const received = request.quoteId ?? '';
  if (quote === undefined) return notFound('quote', 'qt', received);
  if (quote.usedBy !== null) return quoteUsed(request, quote.usedBy);
  if (!quote.inTime || request.ageMs > heldRateMaximumAgeMs) {
    return refuse('quote_expired', {
      param: 'quote',
      expected: quote.inTime
        ? 'a payout that is decided within five minutes of its request'
        : 'a payout requested before the expires_at of its quote',
      received,
      detail: quote.inTime
        ? 'The payout could not be decided within five minutes. Create a new quote.'
        : 'The quote expired before the payout was requested. Create a new quote.',
    });
  }
  return quote;
}

/** A quote holds its rate for one payout. */
function quoteUsed({ quoteId }: PayoutRequest, usedBy: string): Refusal {
  return refuse('quote_used', {
    param: 'quote',
    expected: 'a quote that no payout has used',
    received: quoteId ?? '',
    detail: `The quote was used by ${usedBy}. Create a new quote.`,
  });
}

function livePrice(request: PayoutRequest, facts: PriceFacts): Acceptance | Refusal {
  const { sourceCurrency, amount, fixedSide } = request;
  if (sourceCurrency === null || amount === null || fixedSide === null) {
    throw new Error('A live-rate payout has a source currency, an amount and a fixed side.');
  }
  if (request.batchId !== null && request.ageMs > heldRateMaximumAgeMs) {
    return refuse('rate_expired', {
      expected: 'an item that is decided within five minutes of its batch',
      hint: 'Send the item again in a new batch.',
    });
  }
  if (facts.beneficiary === undefined) return notFound('beneficiary', 'bnf', request.beneficiaryId);
  const destinationCurrency = request.destinationCurrency ?? facts.beneficiary.currency;
  const asked = { sourceCurrency, destinationCurrency, amount, fixedSide };
  const priced = price({ ...asked, ...facts.pairOf(sourceCurrency, destinationCurrency) });
  return isRefusal(priced) ? priced : { ...priced, ...asked };
}

function notFound(param: 'quote' | 'beneficiary', prefix: string, received: string): Refusal {
  return refuse(`${param}_not_found`, {
    param,
    expected: `the id of a ${param} of this account (${prefix}_…)`,
    received,
    detail: `This account has no ${param} ${received}.`,
  });
}
