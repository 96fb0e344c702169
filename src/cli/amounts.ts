import { digitsOf, formatMinor, isCurrency, mostMinor, parseMajor } from '../domain/money.js';
import { type Flags, requiredFlag, UsageError } from './usage.js';

/** Returns the currency that a flag names. */
export function currencyOf(flags: Flags, name = 'currency'): string {
  const currency = requiredFlag(flags, name);
  if (isCurrency(currency)) return currency;
  throw new UsageError(`--${name} expects an ISO 4217 code.`);
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
