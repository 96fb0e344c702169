import { iso4217 } from './iso4217.js';

/** An amount in minor units of a currency. */
export type Sum = { readonly amountMinor: bigint; readonly currency: string };

/** Maximum amount in minor units: the maximum of a PostgreSQL `bigint` column. */
export const mostMinor = 2n ** 63n - 1n;

/** Whether `code` is an active ISO 4217 currency code, in upper case. */
export function isCurrency(code: string): boolean {
  return iso4217.has(code);
}

/**
 * Returns the number of decimal digits of a currency in ISO 4217 (JPY 0, USD 2, KWD 3). Throws for an
 * unknown code: currencies are checked before any calculation, so an unknown code here is a bug.
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

/** Prints minor units in major units with thousands separators: "1,234.50". */
export function writtenMinor(minor: bigint, currency: string): string {
  return formatMinor(minor, currency).replace(/\B(?=(\d{3})+(?!\d))(?<!\.\d*)/g, ',');
}

/** Prints an amount with its currency, for use in sentences: "12.50 USD". */
export function formatSum(minor: bigint, currency: string): string {
  return `${formatMinor(minor, currency)} ${currency}`;
}

/** Prints an amount with its currency and thousands separators: "1,250.00 USD". */
export function writtenSum(minor: bigint, currency: string): string {
  return `${writtenMinor(minor, currency)} ${currency}`;
}

// 30 digits are enough for any amount of money. Without the limit, an attacker could send a very long
// integer, which takes quadratic time to parse.
const decimalText = /^(-?)(0|[1-9]\d{0,29})(?:\.(\d+))?$/;

/**
 * Parses a decimal string in major units exactly. Missing decimals count as zeros. Returns `undefined` for
 * more decimals than the currency has, an exponent, a plus sign or leading zeros.
 */
export function parseMajor(text: string, currency: string): bigint | undefined {
  const digits = digitsOf(currency);
  const [, sign, whole, fraction = ''] = decimalText.exec(text) ?? [];
  if (whole === undefined || fraction.length > digits) return undefined;
  const minor = BigInt(whole + fraction.padEnd(digits, '0'));
  return sign === '-' ? -minor : minor;
}

/** Divides integers (minor units or scales) and rounds up. `dividend` ≥ 0, `divisor` > 0. */
export function divideUp(dividend: bigint, divisor: bigint): bigint {
  return (dividend + divisor - 1n) / divisor;
}

/** Returns the smaller of two amounts in the same unit; `Math.min` does not accept `bigint`. */
export function min(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}

/** Returns the larger of two amounts in the same unit; `Math.max` does not accept `bigint`. */
export function max(a: bigint, b: bigint): bigint {
  return a > b ? a : b;
}

const majorUnits = /^(\d{1,3}(?:,\d{3})+|\d{1,15})(?:\.(\d{1,4}))?(?: ?([A-Z]{3}))?$/;

/** Describes a valid amount of a request, with an example in its currency. */
export function minorUnitsExpected(currency: string): string {
  return `a positive integer of minor units, such as 1250 for ${formatSum(1250n, currency)}`;
}

/**
 * Returns what to send instead of an amount in major units (`12.50`, `12.50 USD`). Suggests both readings
 * if it may also be minor units (`1,250.00`, `125000.0`). Returns undefined if it is neither.
 */
export function minorUnitsHint(text: string, currency: string): string | undefined {
  const [written, whole, fraction = '', named = currency] = majorUnits.exec(text) ?? [];
  if (whole === undefined || written === whole) return undefined;
  if (named !== currency) return `The amount is in ${currency}.`;
  // Leading zeros change no amount, but parseMajor refuses them.
  const units = whole.replaceAll(',', '').replace(/^0+(?=\d)/, '');
  const minor = parseMajor(`${units}${fraction && `.${fraction}`}`, currency);
  if (minor === 0n) return undefined;
  if (minor === undefined) return `${currency} has ${digitsOf(currency) || 'no'} decimal places.`;
  const isEither = /^0*$/.test(fraction) && units !== `${minor}`;
  return `Send ${isEither ? `${units} if you mean minor units, ` : ''}${minor} for ${formatSum(minor, currency)}.`;
}
