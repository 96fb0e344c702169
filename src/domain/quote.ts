import { type Corridor, corridorCurrencies, feeFor, grossFor } from './corridor.js';
import { convertBackUp, convertFloor, quotedRate, type Rate } from './fx.js';
import { formatSum } from './money.js';
import { type Refusal, refuse } from './refusal.js';

/** Which side of the conversion the caller fixes; the other one follows. */
export type FixedSide = 'source' | 'destination';

/**
 * What is to be priced. `amount` is in minor units of the source currency, or of
 * the destination currency when that side is fixed. `mid` is the market's rate,
 * undefined when no source has given one that is new enough; `corridor` is undefined where money
 * cannot go.
 */
export type PriceRequest = {
  readonly sourceCurrency: string;
  readonly destinationCurrency: string;
  readonly amount: bigint;
  readonly fixedSide: FixedSide;
  readonly mid: Rate | undefined;
  readonly corridor: Corridor | undefined;
};

/** What the caller says of it; the rest is the market's and ours. */
export type AskedPrice = Omit<PriceRequest, 'mid' | 'corridor'>;

/**
 * A price: `sourceMinor` leaves the balance, of it `feeMinor` is kept and
 * `netMinor` converted, `receiveMinor` arrives. `midValueMinor` is what the net
 * amount is worth at the mid rate, in minor units of the destination currency.
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

/** What arrives of one payout at most: of 10,000 in a batch the sums still fit a bigint of PostgreSQL. */
const mostReceivedMinor = 8n * 10n ** 14n;

/**
 * Prices a request, or refuses it: `currency_unsupported` on the currency that is not served,
 * `rate_unavailable` without a rate, `amount_too_small` and `amount_too_large` on `amount` with the
 * limit in the unit that the caller sent. With the destination fixed, exactly `amount` arrives and the
 * source is the smallest amount that reaches it.
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

  // The net amount never falls when the amount rises, so a request that stays below the
  // amount that reaches one minor unit has a net or a receive amount of nothing.
  const least = fixedSide === 'source' ? reaching(1n) : 1n;
  if (amount < least) return outside('amount_too_small', request, least);
  const sourceMinor = fixedSide === 'source' ? amount : reaching(amount);
  const most = reaching(mostReceivedMinor);
  const capped = most < corridor.maximumMinor ? { ...corridor, maximumMinor: most } : corridor;
  if (sourceMinor > capped.maximumMinor) {
    return outside('amount_too_large', request, largest(capped, fixedSide, rate));
  }

  const feeMinor = feeFor(sourceMinor, corridor.fee);
  const netMinor = sourceMinor - feeMinor;
  const converted = convertFloor(netMinor, source, destination, rate);
  return {
    sourceMinor,
    feeMinor,
    netMinor,
    receiveMinor: fixedSide === 'source' ? converted : amount,
    midValueMinor: convertFloor(netMinor, source, destination, mid),
    rate,
    mid,
  };
}

/** The largest amount that can be asked for: what the corridor's maximum turns into. */
function largest(corridor: Corridor, fixedSide: FixedSide, rate: Rate): bigint {
  const { source, destination, maximumMinor, fee } = corridor;
  if (fixedSide === 'source') return maximumMinor;
  return convertFloor(maximumMinor - feeFor(maximumMinor, fee), source, destination, rate);
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
