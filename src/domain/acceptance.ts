import type { Rate } from './fx.js';
import { formatMinor } from './money.js';
import { type FixedSide, type Price, price } from './quote.js';
import { isRefusal, type Refusal, refuse } from './refusal.js';

/**
 * The longest time between the request of a quoted payout and its acceptance: the caller
 * was promised a rate for 30 seconds, and holding it for a queue longer than five minutes
 * would be a free option on the market.
 */
export const quotedPayoutMaximumAgeMs = 5 * 60 * 1000;

/** What was asked: either a quote, or the live rate with its own parameters. */
export type Asked = {
  readonly quoteId: string | null;
  readonly beneficiaryId: string;
  readonly sourceCurrency: string | null;
  readonly destinationCurrency: string | null;
  readonly fixedSide: FixedSide | null;
  readonly amount: bigint | null;
  /** Set on an item of a batch, which was promised the rates of the batch's request. */
  readonly batchId: string | null;
  /** The larger of the database's and the workflow's own measure; the two clocks never mix. */
  readonly ageMs: number;
};

/** A quote as it stands, under its lock. */
export type LockedQuote = Acceptance & {
  readonly usedBy: string | null;
  /** Whether the payout was requested strictly before the quote's `expires_at`. */
  readonly inTime: boolean;
};

/** What the price depends on; absent means that the account has no such object. */
export type PriceFacts = {
  readonly quote: LockedQuote | undefined;
  readonly beneficiary: { readonly currency: string } | undefined;
  readonly midOf: (source: string, destination: string) => Rate | undefined;
};

/** Everything the decision looks at. */
export type Facts = PriceFacts & {
  readonly availableOf: (currency: string) => bigint;
};

export type Acceptance = Price & {
  readonly sourceCurrency: string;
  readonly destinationCurrency: string;
  readonly fixedSide: FixedSide;
  readonly amount: bigint;
};

/**
 * Decides one payout, purely: the frozen amounts, or why not. The order of the checks is
 * the order in which a caller can repair them: the quote, the beneficiary, the funds.
 */
export function decide(asked: Asked, facts: Facts): Acceptance | Refusal {
  const priced = priceOf(asked, facts);
  return isRefusal(priced)
    ? priced
    : afford(asked, priced, facts.availableOf(priced.sourceCurrency));
}

/** What the payout would come to, or why there is no such payout: all but the funds. */
export function priceOf(asked: Asked, facts: PriceFacts): Acceptance | Refusal {
  const priced = asked.quoteId === null ? livePrice(asked, facts) : quotedPrice(asked, facts);
  if (isRefusal(priced)) return priced;
  if (facts.beneficiary === undefined) return beneficiaryNotFound(asked.beneficiaryId);
  const receives = facts.beneficiary.currency;
  if (receives !== priced.destinationCurrency) {
    return refuse('currency_mismatch', {
      param: asked.quoteId === null ? 'destination_currency' : 'quote',
      expected: `a payout in ${receives}, the currency of the beneficiary`,
      received: priced.destinationCurrency,
    });
  }
  return priced;
}

/** The payout, or why the available balance (minor units of its source) does not carry it. */
export function afford(asked: Asked, priced: Acceptance, available: bigint): Acceptance | Refusal {
  if (available < priced.sourceMinor) {
    return refuse('insufficient_funds', {
      param: asked.quoteId === null ? 'amount' : 'quote',
      expected: `at most ${formatMinor(available, priced.sourceCurrency)} ${priced.sourceCurrency}, the available balance`,
      received: `${formatMinor(priced.sourceMinor, priced.sourceCurrency)} ${priced.sourceCurrency}`,
      detail: 'Add funds first.',
    });
  }
  return priced;
}

function quotedPrice(asked: Asked, { quote }: PriceFacts): Acceptance | Refusal {
  const received = asked.quoteId ?? '';
  if (quote === undefined) {
    return refuse('quote_not_found', {
      param: 'quote',
      expected: 'the id of a quote of this account (qt_…)',
      received,
    });
  }
  if (quote.usedBy !== null) return quoteUsed(asked, quote.usedBy);
  if (!quote.inTime || asked.ageMs > quotedPayoutMaximumAgeMs) {
    return refuse('quote_expired', {
      param: 'quote',
      expected: 'a payout requested before the expires_at of its quote',
      received,
      detail: 'Ask for a new quote.',
    });
  }
  return quote;
}

/** A quote holds its rate for one payout. */
export function quoteUsed({ quoteId }: Asked, usedBy: string): Refusal {
  return refuse('quote_used', {
    param: 'quote',
    expected: 'a quote that no payout has used',
    received: quoteId ?? '',
    detail: `The quote was used by ${usedBy}. Ask for a new quote.`,
  });
}

function livePrice(asked: Asked, facts: PriceFacts): Acceptance | Refusal {
  const { sourceCurrency, amount, fixedSide } = asked;
  if (sourceCurrency === null || amount === null || fixedSide === null) {
    throw new Error('A live-rate payout has a source currency, an amount and a fixed side.');
  }
  if (asked.batchId !== null && asked.ageMs > quotedPayoutMaximumAgeMs) {
    return refuse('rate_expired', {
      expected: 'an item that is decided within five minutes of its batch',
      detail: 'Send the item again in a new batch.',
    });
  }
  if (facts.beneficiary === undefined) return beneficiaryNotFound(asked.beneficiaryId);
  const destinationCurrency = asked.destinationCurrency ?? facts.beneficiary.currency;
  const mid = facts.midOf(sourceCurrency, destinationCurrency);
  const priced = price({ sourceCurrency, destinationCurrency, amount, fixedSide, mid });
  return isRefusal(priced)
    ? priced
    : { ...priced, sourceCurrency, destinationCurrency, fixedSide, amount };
}

/** Why nothing of an account in this mode can be sent. */
export function refuseUnroutable(mode: 'test' | 'live'): Refusal {
  return refuse('corridor_unavailable', { detail: `No rail carries ${mode} payouts here.` });
}

function beneficiaryNotFound(received: string): Refusal {
  return refuse('beneficiary_not_found', {
    param: 'beneficiary',
    expected: 'the id of a beneficiary of this account (bnf_…)',
    received,
  });
}
