import Big from 'big.js';
import { digitsOf, divideUp } from './money.js';

/** Units of the destination currency for one unit of the source currency, exact. */
export type Rate = Big;

// Ten significant digits are far finer than any market quotes, and every one of
// them survives in a JSON number, which API version 2026-06-01 promises.
const quotedDigits = 10;

// Two more than a quoted rate has, so that the spread is taken from a mid rate
// that is not itself cut off at the quoted digits.
const midDigits = 12;

// 15 digits before the point and 24 after it bound the work; the widest cross
// rate (IDR to KWD, 12 significant digits) needs 16 after the point.
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
 * The mid rate between two currencies from their values for one euro: destination
 * over source, rounded half even to 12 significant digits (to a whole number from
 * 10^12 on). Throws when either text is not a rate.
 */
export function crossMid(perEuroSource: string, perEuroDestination: string): Rate {
  // Constructors of our own: any module could change `DP` and `RM` of the shared one.
  const Truncating = Big();
  Truncating.DP = 40;
  Truncating.RM = Big.roundDown;
  const source = parseRate(perEuroSource);
  const destination = new Truncating(parseRate(perEuroDestination));
  // The exponent of the truncated quotient says how many decimals hold 12
  // significant digits, so that the result is rounded once and not twice.
  const { e: exponent } = destination.div(source);
  const Rounding = Big();
  Rounding.DP = Math.max(0, midDigits - 1 - exponent);
  Rounding.RM = Big.roundHalfEven;
  return new Big(new Rounding(destination).div(source));
}

/**
 * The rate a customer gets: mid × (1 − spread), rounded down to at most 10
 * significant digits. `spreadBasisPoints` is an integer from 0 to 9999.
 */
export function quotedRate(mid: Rate, spreadBasisPoints: number): Rate {
  // Multiplied by a decimal and not divided: a product is exact whatever its length.
  const kept = new Big(10_000 - spreadBasisPoints).times('0.0001');
  return mid.times(kept).prec(quotedDigits, Big.roundDown);
}

/** A rate between minor units as an exact fraction of two integers. */
function minorRatio(source: string, destination: string, rate: Rate) {
  const [whole = '', fraction = ''] = rate.toFixed().split('.');
  return {
    numerator: BigInt(whole + fraction) * 10n ** BigInt(digitsOf(destination)),
    denominator: 10n ** BigInt(fraction.length + digitsOf(source)),
  };
}

/**
 * Converts `minor` units of `source` to minor units of `destination`, rounded
 * down. Exact for any size: everything is integer arithmetic. Throws below zero.
 */
export function convertFloor(
  minor: bigint,
  source: string,
  destination: string,
  rate: Rate,
): bigint {
  if (minor < 0n) throw new RangeError('Only amounts of zero or more are converted');
  const { numerator, denominator } = minorRatio(source, destination, rate);
  return (minor * numerator) / denominator;
}

/**
 * The inverse of `convertFloor`: the smallest amount in minor units of `source`
 * whose conversion reaches `minor` units of `destination`. Throws below zero.
 */
export function convertBackUp(
  minor: bigint,
  source: string,
  destination: string,
  rate: Rate,
): bigint {
  if (minor < 0n) throw new RangeError('Only amounts of zero or more are converted');
  const { numerator, denominator } = minorRatio(source, destination, rate);
  return divideUp(minor * denominator, numerator);
}
