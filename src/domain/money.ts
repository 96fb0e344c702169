import { iso4217 } from './iso4217.js';

/** The largest amount that a column holds, in minor units. */
export const mostMinor = 2n ** 63n - 1n;

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

/** The same as people write it: "1,234.50". */
export function writtenMinor(minor: bigint, currency: string): string {
  return formatMinor(minor, currency).replace(/\B(?=(\d{3})+(?!\d))(?<!\.\d*)/g, ',');
}

/** An amount with its currency, as sentences have it: "12.50 USD". */
export function formatSum(minor: bigint, currency: string): string {
  return `${formatMinor(minor, currency)} ${currency}`;
}

/** An amount as people write it: "1,250.00 USD". */
export function writtenSum(minor: bigint, currency: string): string {
  return `${writtenMinor(minor, currency)} ${currency}`;
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

const majorUnits = /^(\d{1,3}(?:,\d{3})+|\d{1,15})(?:\.(\d{1,4}))?(?: ?([A-Z]{3}))?$/;

/** What an amount of a request has to be, with an example in its currency. */
export function minorUnitsExpected(currency: string): string {
  return `a positive integer of minor units, such as 1250 for ${formatSum(1250n, currency)}`;
}

/**
 * What to send in place of an amount that was written in major units (`12.50`, `12.50 USD`); both,
 * where it may as well be one of minor units (`1,250.00`, `125000.0`); undefined where it is neither.
 */
export function minorUnitsHint(text: string, currency: string): string | undefined {
  const [written, whole, fraction = '', named = currency] = majorUnits.exec(text) ?? [];
  if (whole === undefined || written === whole) return undefined;
  if (named !== currency) return `The amount is in ${currency}.`;
  const units = whole.replaceAll(',', '');
  const minor = parseMajor(`${units}${fraction && `.${fraction}`}`, currency);
  if (minor === 0n) return undefined;
  if (minor === undefined) return `${currency} has ${digitsOf(currency) || 'no'} decimal places.`;
  const isEither = /^0*$/.test(fraction) && units !== `${minor}`;
  return `Send ${isEither ? `${units} if you mean minor units, ` : ''}${minor} for ${formatSum(minor, currency)}.`;
}
