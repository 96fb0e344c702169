import formats from './accountFormats.json' with { type: 'json' };
import { checks, isLuhn, isNuban } from './checkDigits.js';
import {
  type BeneficiaryField,
  beneficiaryFields,
  compact,
  digitOf,
  type FieldRule,
} from './fieldRule.js';
import { isAccountAt } from './modulusCheck.js';

/**
 * Format of one field of an account without an IBAN: its local name, its layout and its check digits.
 * The layouts are those that clearing houses publish and payout providers require;
 * `test/fixtures/accountNumbers.json` names a source for each of its account numbers.
 */
type FieldFormat = Pick<FieldRule, 'pattern' | 'expected' | 'example'> & {
  /** The local name of the field, such as "sort code" or "CLABE". */
  readonly title: string;
  readonly check?: string;
  readonly optional?: boolean;
  readonly default?: string;
  /** Selects special normalisation for a field that is written in more ways than an account number. */
  readonly form?: string;
};

type AccountFormat = { readonly [field in BeneficiaryField]?: FieldFormat };

type CountryFormats = {
  /** The only currency (ISO 4217) that these accounts receive. */
  readonly currency: string;
  /** The kinds of account, the most common first. */
  readonly accounts: readonly AccountFormat[];
};

const byCountry: ReadonlyMap<string, CountryFormats> = new Map(Object.entries(formats));

/** The countries that have accounts without an IBAN. */
export const nationalCountries: readonly string[] = [...byCountry.keys()];

/**
 * Returns the field rules of each kind of account that a country has, and the currency these accounts
 * receive. `issuer` is the country code that the country's IBANs start with, if it has IBANs.
 */
export function nationalAccounts(
  country: string,
  issuer: string | undefined,
): { readonly currency: string; readonly accounts: readonly (readonly FieldRule[])[] } | undefined {
  const found = byCountry.get(country);
  if (found === undefined) return undefined;
  const accounts = found.accounts.map((account) =>
    beneficiaryFields.flatMap((field) => {
      const format = account[field];
      return format === undefined ? [] : [ruleOf(field, format, account, issuer)];
    }),
  );
  return { currency: found.currency, accounts };
}

function ruleOf(
  field: BeneficiaryField,
  format: FieldFormat,
  account: AccountFormat,
  issuer: string | undefined,
): FieldRule {
  return {
    field,
    required: format.optional !== true && format.default === undefined,
    expected: format.expected,
    pattern: layoutOf(format).source,
    example: format.example,
    default: format.default,
    read: (text) => {
      const value = normalised(format, text);
      return layoutOf(format).test(value) && isChecked(format, value) ? value : undefined;
    },
    fault: (text) => {
      const value = normalised(format, text);
      return isIban(value) ? ibanSentence(value, issuer) : faultOf(field, format, value, account);
    },
  };
}

function layoutOf({ pattern }: FieldFormat): RegExp {
  return new RegExp(`^(?:${pattern})$`);
}

/** Normalises a value to its stored form. */
function normalised({ pattern, form }: FieldFormat, text: string): string {
  if (form === 'kana') return text.normalize('NFKC').toUpperCase();
  // Pix keys that are e-mail addresses or random keys (UUIDs) keep dashes and dots, in lower case.
  if (form === 'pix' && /@|^[0-9a-f]{8}-[0-9a-f]{4}-/i.test(text)) return text.toLowerCase();
  // A CPF or CNPJ is printed with dots and a slash, a phone number with parentheses.
  if (form === 'pix' || form === 'tax') return compact(text.replaceAll(/[./()]/g, ''));
  // Enumerated values, such as savings, are our own words and are compared as sent. Fields of the form
  // `plain` keep their dash: in a branch code it precedes a check digit, which must not be sent.
  return form === 'plain' || /^[a-z|]+$/.test(pattern) ? text : compact(text);
}

function isChecked({ check }: FieldFormat, value: string): boolean {
  return check === undefined || checks[check]?.(value) === true;
}

const isIban = (value: string): boolean => /^[A-Z]{2}\d{2}[A-Z0-9]{11,30}$/.test(value);

function ibanSentence(iban: string, issuer: string | undefined): string {
  if (issuer === undefined) return 'This is an IBAN; accounts in this country have none.';
  return iban.startsWith(issuer)
    ? 'This is an IBAN: send it as iban, and leave out the other fields of the account.'
    : 'This is an IBAN of another country.';
}

/** Returns a sentence about an invalid value if the fault is a common mistake. */
function faultOf(
  field: BeneficiaryField,
  format: FieldFormat,
  value: string,
  account: AccountFormat,
): string | undefined {
  const { title } = format;
  if (layoutOf(format).test(value)) return checkSentence(format);
  const digits = Array.from(value, (letter) => digitOf[letter] ?? letter).join('');
  if (digits !== value && layoutOf(format).test(digits)) {
    return `The ${title} has a letter where a digit belongs, such as O for 0 or I for 1.`;
  }
  const length = fixedLength(format);
  if (length === undefined || !/^\d+$/.test(value)) return undefined;
  if (field === 'account_number' && value.length === 16 && isLuhn(value)) {
    return 'This is the number of a card, not of an account.';
  }
  const plural = value.length === 1 ? '' : 's';
  const count = `The ${title} has ${value.length} digit${plural} instead of ${length}`;
  const other = beneficiaryFields.find((name) => fixedLength(account[name]) === value.length);
  const swapped = other && `it is the ${account[other]?.title}, which goes in ${other}`;
  const lost = value.length < length ? 'leading zeros may have been lost' : undefined;
  const guesses = [lost, swapped].filter((guess) => guess !== undefined).join(', or ');
  return guesses === '' ? `${count}.` : `${count}: ${guesses}.`;
}

/** Returns the sentence for a value whose layout is right but whose check digits are wrong. */
function checkSentence({ check, title }: FieldFormat): string {
  if (check === 'pixKey') {
    return 'The check digits are wrong for a CPF or CNPJ; a phone number starts with its country code, +55.';
  }
  return check === 'aba' || check === 'clabe' || check === 'rut'
    ? `The check digit of the ${title} is wrong: a digit is wrong or two are swapped.`
    : `The check digits of the ${title} are wrong: a digit is wrong or two are swapped.`;
}

/** Checks fields that are valid individually against each other: some check digits cover bank and account. */
export function pairFault(values: { readonly [field in BeneficiaryField]?: string }) {
  const { country, account_number: account, routing_number: sortCode, bank_code: bank } = values;
  if (country === 'NG' && account !== undefined && bank !== undefined && !isNuban(bank, account)) {
    return 'The account number does not match the bank code: a digit of one is wrong or two are swapped.';
  }
  if (country !== 'GB' || account === undefined || sortCode === undefined) return undefined;
  return isAccountAt(sortCode, account)
    ? undefined
    : 'The account number does not match the sort code: a digit of one is wrong or two are swapped.';
}

/** Returns the number of digits of a field whose length is fixed. */
function fixedLength(format: FieldFormat | undefined): number | undefined {
  const length = /^\[0-9\]\{(\d+)\}$/.exec(format?.pattern ?? '')?.[1];
  return length === undefined ? undefined : Number.parseInt(length, 10);
}
