import { iso4217 } from './iso4217.js';

/** Whether `code` is an active ISO 4217 currency (upper case, as the list has it). */
export function isCurrency(code: string): boolean {
  return iso4217.has(code);
}

/**
 * How many decimal digits the currency has in ISO 4217 (JPY 0, USD 2, KWD 3).
 * Throws for an unknown code: by the time money is counted its currency has been
 * checked, so an unknown one is a bug.
 */
export function digitsOf(currency: string): number {
  const entry = iso4217.get(currency);
  if (entry === undefined) throw new RangeError(`Not an ISO 4217 currency: ${currency}`);
  return entry.digits;
}

/** Prints minor units as a decimal string in major units: "1234.50", JPY "1234", KWD "-1.234". */
export function formatMinor(minor: bigint, currency: string): string {
  const digits = digitsOf(currency);
  const sign = minor < 0n ? '-' : '';
  const text = (minor < 0n ? -minor : minor).toString().padStart(digits + 1, '0');
  if (digits === 0) return sign + text;
  return `${sign}${text.slice(0, -digits)}.${text.slice(-digits)}`;
}

// 30 digits hold any sum of money there is; the limit keeps a hostile text from
// costing the quadratic time that a very long integer takes to read.
const decimalText = /^(-?)(0|[1-9]\d{0,29})(?:\.(\d+))?$/;

/**
 * Reads a decimal string in major units, exactly. Fewer decimals than the
 * currency has are filled up; more of them, an exponent, a plus sign or leading
 * zeros are not an amount: `undefined`.
 */
export function parseMajor(text: string, currency: string): bigint | undefined {
  const digits = digitsOf(currency);
  const [, sign, whole, fraction = ''] = decimalText.exec(text) ?? [];
  if (whole === undefined || fraction.length > digits) return undefined;
  const minor = BigInt(whole + fraction.padEnd(digits, '0'));
  return sign === '-' ? -minor : minor;
}

/** Integer division rounded up. Both are minor units or scales: `dividend` ≥ 0, `divisor` > 0. */
export function divideUp(dividend: bigint, divisor: bigint): bigint {
  return (dividend + divisor - 1n) / divisor;
}

/** The larger of two amounts in the same unit; `Math.max` does not take integers of any size. */
export function max(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}
