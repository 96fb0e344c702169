import Big from 'big.js';
import { digitsOf, divideUp } from './money.js';

/** Units of the destination currency for one unit of the source currency, exact. */
export type Rate = Big;

// Ten significant digits are far finer than any market quote. A JSON number represents them exactly, which
// API version 2026-06-01 promises.
const quotedDigits = 10;

// Two more digits than a quoted rate, so that the spread is deducted from a mid rate that has not been
// rounded to the quoted digits.
const midDigits = 12;

// At most 15 digits before the decimal point and 24 after it, to bound the work. The cross rate with the
// most decimals (IDR to KWD, 12 significant digits) needs 16.
const rateText = /^(?:0|[1-9]\d{0,14})(?:\.\d{1,24})?$/;

/** Reads a rate from plain decimal text. Throws on any other form, and on zero. */
export function parseRate(text: string): Rate {
  if (!rateText.test(text)) throw new RangeError(`Not a decimal rate: ${text.slice(0, 60)}`);
  const rate = new Big(text);
  if (rate.eq(0)) throw new RangeError('A rate must be above zero');
  return rate;
}

/** Prints a rate in plain decimal digits, without an exponent or trailing zeros. */
export function formatRate(rate: Rate): string {
  return rate.toFixed();
}

/**
 * Returns the mid rate between two currencies from their rates per euro: destination divided by
 * source, rounded half even to 12 significant digits (to a whole number from 10^12 on). Throws if either
 * text is not a rate.
 */
export function crossMid(perEuroSource: string, perEuroDestination: string): Rate {
  return quotient(parseRate(perEuroDestination), parseRate(perEuroSource));
}

/** Returns the average rate of payouts from their sums, which may have more digits than a rate; else as `crossMid`. */
export function averageRate(net: string, promised: string): Rate {
  return quotient(new Big(promised), new Big(net));
}

function quotient(dividend: Big, divisor: Big): Rate {
  // The exponent of the quotient determines how many decimals 12 significant digits need. It is derived
  // without dividing, so that the only division computes no more digits than are kept, and rounds once.
  const about = dividend.e - divisor.e;
  const exponent = divisor.times(`1e${about}`).gt(dividend) ? about - 1 : about;
  // A separate constructor, because any module could change `DP` and `RM` of the shared one.
  const Rounding = Big();
  Rounding.DP = Math.max(0, midDigits - 1 - exponent);
  Rounding.RM = Big.roundHalfEven;
  return new Big(new Rounding(dividend).div(divisor));
}

/**
 * Returns the rate for the customer: mid × (1 − spread), rounded down to at most 10 significant digits.
 * `spreadBasisPoints` is an integer from 0 to 9999.
 */
export function quotedRate(mid: Rate, spreadBasisPoints: number): Rate {
  // Multiplies by a decimal fraction instead of dividing, because a product is always exact.
  const kept = new Big(10_000 - spreadBasisPoints).times('0.0001');
  return mid.times(kept).prec(quotedDigits, Big.roundDown);
}

type Conversion = readonly [source: string, destination: string, rate: Rate];

/**
 * Returns the rate between minor units of two currencies as an exact fraction of integers, for an amount.
 * Throws if the amount is negative.
 */
function ratioFor(minor: bigint, ...[source, destination, rate]: Conversion) {
  if (minor < 0n) throw new RangeError('Only amounts of zero or more are converted');
  const [whole = '', fraction = ''] = rate.toFixed().split('.');
  return {
    numerator: BigInt(whole + fraction) * 10n ** BigInt(digitsOf(destination)),
    denominator: 10n ** BigInt(fraction.length + digitsOf(source)),
  };
}

/**
 * Converts `minor` units of `source` to minor units of `destination`, rounded down. Integer arithmetic keeps
 * it exact for any size. Throws if the amount is negative.
 */
export function convertFloor(minor: bigint, ...conversion: Conversion): bigint {
  const { numerator, denominator } = ratioFor(minor, ...conversion);
  return (minor * numerator) / denominator;
}

/**
 * The inverse of `convertFloor`: returns the smallest amount in minor units of `source` whose conversion
 * reaches `minor` units of `destination`. Throws if the amount is negative.
 */
export function convertBackUp(minor: bigint, ...conversion: Conversion): bigint {
  const { numerator, denominator } = ratioFor(minor, ...conversion);
  return divideUp(minor * denominator, numerator);
}
