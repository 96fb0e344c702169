import formats from './accountFormats.json' with { type: 'json' };
import { checks } from './checkDigits.js';
import { type BeneficiaryField, beneficiaryFields, compact, type FieldRule } from './fieldRule.js';

/**
 * Accounts without an IBAN, by country: what each field is called there, its layout, and the check
 * digits that it has. The layouts are those that clearing houses publish and that providers of
 * payouts ask for; `test/fixtures/accountNumbers.json` names a source for every number it holds.
 */
type FieldFormat = {
  /** What people there call it: a sort code, a CLABE. */
  readonly title: string;
  readonly pattern: string;
  readonly expected: string;
  readonly example: string;
  readonly check?: string;
  readonly optional?: boolean;
  readonly default?: string;
  /** Spaces, dashes and small letters belong to it. */
  readonly verbatim?: boolean;
};

type AccountFormat = { readonly [field in BeneficiaryField]?: FieldFormat };

type CountryFormats = {
  /** ISO 4217: the only currency that these accounts receive. */
  readonly currency: string;
  /** The kinds of account, the usual one first. */
  readonly accounts: readonly AccountFormat[];
};

const byCountry: ReadonlyMap<string, CountryFormats> = new Map(Object.entries(formats));

/** The countries with accounts that have no IBAN. */
export const nationalCountries: readonly string[] = [...byCountry.keys()];

/** The kinds of account of a country by their fields, and the currency they receive. */
export function nationalAccounts(
  country: string,
): { readonly currency: string; readonly accounts: readonly (readonly FieldRule[])[] } | undefined {
  const found = byCountry.get(country);
  return found && { currency: found.currency, accounts: found.accounts.map(rulesOf) };
}

function rulesOf(account: AccountFormat): readonly FieldRule[] {
  return beneficiaryFields.flatMap((field) => {
    const format = account[field];
    return format === undefined ? [] : [ruleOf(field, format, account)];
  });
}

function ruleOf(field: BeneficiaryField, format: FieldFormat, account: AccountFormat): FieldRule {
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
    fault: (text) => faultOf(field, normalised(format, text), account),
  };
}

function layoutOf({ pattern }: FieldFormat): RegExp {
  return new RegExp(`^(?:${pattern})$`);
}

/** A choice is a word of ours, and is taken as it is written. */
function normalised({ pattern, verbatim }: FieldFormat, text: string): string {
  return verbatim === true || /^[a-z|]+$/.test(pattern) ? text : compact(text);
}

function isChecked({ check }: FieldFormat, value: string): boolean {
  return check === undefined || checks[check]?.(value) === true;
}

/** Letters that are read and typed for digits. */
const digitOf: Readonly<Record<string, string>> = { O: '0', I: '1', L: '1', S: '5', B: '8' };

/** What is wrong with a value, where it is a slip that people make. */
function faultOf(
  field: BeneficiaryField,
  value: string,
  account: AccountFormat,
): string | undefined {
  const format = account[field];
  if (format === undefined) return undefined;
  const { title } = format;
  if (layoutOf(format).test(value)) {
    return `The check digits of the ${title} are wrong: a character is wrong or two are swapped.`;
  }
  if (/^[A-Z]{2}\d{2}[A-Z0-9]{11,30}$/.test(value)) return 'This is an IBAN, which goes in iban.';
  const digits = Array.from(value, (letter) => digitOf[letter] ?? letter).join('');
  if (digits !== value && layoutOf(format).test(digits)) {
    return `The ${title} has a letter where a digit belongs, such as O for 0 or I for 1.`;
  }
  const length = fixedLength(format);
  if (length === undefined || !/^\d+$/.test(value)) return undefined;
  const count = `The ${title} has ${value.length} digits instead of ${length}`;
  const other = beneficiaryFields.find((name) => fixedLength(account[name]) === value.length);
  if (other !== undefined)
    return `${count}. If it is the ${account[other]?.title}, send it as ${other}.`;
  return value.length < length ? `${count}: zeros in front of it may have been lost.` : `${count}.`;
}

/** How many digits a value has, where each has as many. */
function fixedLength(format: FieldFormat | undefined): number | undefined {
  const length = /^\[0-9\]\{(\d+)\}$/.exec(format?.pattern ?? '')?.[1];
  return length === undefined ? undefined : Number.parseInt(length, 10);
}
