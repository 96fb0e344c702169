import { type Corridor, corridorCurrencies, feeFor, grossFor } from './corridor.js';
import { convertBackUp, convertFloor, quotedRate, type Rate } from './fx.js';
import { formatSum, min } from './money.js';
import { type Refusal, refuse } from './refusal.js';

/** The side of the conversion whose amount the caller fixes; the other amount is calculated. */
export type FixedSide = 'source' | 'destination';

/**
 * A request for a price. `amount` is in minor units of the currency of the fixed side. `mid` is the market
 * rate, undefined if no rate source has a recent one. `corridor` is undefined if there is no corridor
 * between the currencies.
 */
export type PriceRequest = {
  readonly sourceCurrency: string;
  readonly destinationCurrency: string;
  readonly amount: bigint;
  readonly fixedSide: FixedSide;
  readonly mid: Rate | undefined;
  readonly corridor: Corridor | undefined;
};

/** The part of the request that the caller sends; the market and our terms determine the rest. */
export type PriceInput = Omit<PriceRequest, 'mid' | 'corridor'>;

/**
 * A price. `sourceMinor` is debited from the balance: `feeMinor` is our fee and `netMinor` is converted.
 * The beneficiary receives `receiveMinor`. `midValueMinor` is the value of the net amount at the mid rate,
 * in minor units of the destination currency.
 */
export type Price = {
  readonly sourceMinor: bigint;
  readonly feeMinor: bigint;
  readonly netMinor: bigint;
  readonly receiveMinor: bigint;
  readonly midValueMinor: bigint;
  readonly rate: Rate;
  readonly mid: Rate;
};

/** How long a quote holds its price, as specified. The database checks it too (0006_quotes.sql). */
export const quoteLifetimeSeconds = 30;

/** Maximum receive amount of a payout: the sum over a batch of 10,000 still fits PostgreSQL's `bigint`. */
const mostReceivedMinor = 8n * 10n ** 14n;

/**
 * Prices a request or refuses it: `currency_unsupported` for a currency that is not served,
 * `rate_unavailable` without a rate, `amount_too_small` or `amount_too_large` with the limit in the
 * currency of the fixed side. If the destination is fixed, the beneficiary receives exactly `amount`, and
 * the source amount is the smallest that achieves this.
 */
export function price(request: PriceRequest): Price | Refusal {
  const { sourceCurrency: source, destinationCurrency: destination } = request;
  const { amount, fixedSide, corridor, mid } = request;
  if (corridor === undefined) return unsupported(source, destination);
  if (mid === undefined) {
    return refuse('rate_unavailable', {
      expected: `a current rate from ${source} to ${destination}`,
      hint: 'No rate source has published one recently enough. Try again later.',
    });
  }
  const rate = quotedRate(mid, corridor.spreadBasisPoints);
  const reaching = (receiveMinor: bigint) =>
    grossFor(convertBackUp(receiveMinor, source, destination, rate), corridor.fee);

  // The net amount never decreases as the amount increases. So a request below the smallest amount that
  // delivers one minor unit has a net or receive amount of zero.
  const least = fixedSide === 'source' ? reaching(1n) : 1n;
  if (amount < least) return outside('amount_too_small', request, least);
  const sourceMinor = fixedSide === 'source' ? amount : reaching(amount);
  const maximumMinor = min(reaching(mostReceivedMinor), corridor.maximumMinor);
  const received = (minor: bigint) =>
    convertFloor(minor - feeFor(minor, corridor.fee), source, destination, rate);
  if (sourceMinor > maximumMinor) {
    const limitMinor = fixedSide === 'source' ? maximumMinor : received(maximumMinor);
    return outside('amount_too_large', request, limitMinor);
  }

  const feeMinor = feeFor(sourceMinor, corridor.fee);
  const netMinor = sourceMinor - feeMinor;
  return {
    sourceMinor,
    feeMinor,
    netMinor,
    receiveMinor: fixedSide === 'source' ? received(sourceMinor) : amount,
    midValueMinor: convertFloor(netMinor, source, destination, mid),
    rate,
    mid,
  };
}

function outside(
  code: 'amount_too_small' | 'amount_too_large',
  request: PriceRequest,
  limitMinor: bigint,
): Refusal {
  const { fixedSide, sourceCurrency, destinationCurrency, amount } = request;
  const currency = fixedSide === 'source' ? sourceCurrency : destinationCurrency;
  const bound = code === 'amount_too_small' ? 'at least' : 'at most';
  return refuse(code, {
    param: 'amount',
    expected: `${bound} ${limitMinor} (${formatSum(limitMinor, currency)})`,
    received: amount.toString(),
  });
}

function unsupported(source: string, destination: string): Refusal {
  const supported = corridorCurrencies();
  const sourceFails = !supported.includes(source);
  const param = sourceFails ? 'source_currency' : 'destination_currency';
  const sent = (sourceFails ? source : destination).slice(0, 40);
  return refuse('currency_unsupported', {
    param,
    expected: `one of ${supported.join(', ')}`,
    received: sent,
    detail: `${param} ${sent} is not supported. Send one of ${supported.join(', ')}.`,
  });
}
