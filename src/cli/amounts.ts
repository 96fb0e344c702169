import { digitsOf, formatMinor, isCurrency, mostMinor, parseMajor } from '../domain/money.js';
import { type Flags, requiredFlag, UsageError } from './usage.js';

/** Returns the currency that a flag names. */
export function currencyOf(flags: Flags, name = 'currency'): string {
  const currency = requiredFlag(flags, name);
  if (isCurrency(currency)) return currency;
  throw new UsageError(`--${name} expects an ISO 4217 code.`);
}

type Range = readonly [least: number, most: number];

/** Parses a whole number in a range, which the error message states. */
export function countOf(name: string, text: string, what: string, [least, most]: Range): number {
  const count = /^\d{1,5}$/.test(text) ? Number.parseInt(text, 10) : Number.NaN;
  if (count >= least && count <= most) return count;
  throw new UsageError(`--${name} expects ${what}, ${least} to ${most}.`);
}

type Rule = { readonly least?: bigint; readonly or?: string };

/** Parses a flag in major units and returns minor units, between `least` and the maximum of a column. */
export function sumOf(flags: Flags, name: string, currency: string, rule: Rule = {}): bigint {
  const { least = 1n, or = '' } = rule;
  const minor = parseMajor(requiredFlag(flags, name), currency);
  if (minor !== undefined && minor >= least && minor <= mostMinor) return minor;
  const sum = `a sum of ${currency}${least > 0n ? ' above zero' : ''}`;
  const digits = `${currency} has ${digitsOf(currency) || 'no'} decimals`;
  const example = formatMinor(1_000n, currency);
  throw new UsageError(`--${name} expects ${or}${sum}, such as ${example}; ${digits}.`);
}
