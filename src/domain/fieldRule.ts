/** Every parameter that describes a beneficiary; which of them apply is up to its account. */
export const beneficiaryFields = [
  'type',
  'name',
  'name_kana',
  'country',
  'currency',
  'iban',
  'bic',
  'account_number',
  'routing_number',
  'bank_code',
  'branch_code',
  'account_type',
  'pix_key',
  'tax_id',
] as const;

export type BeneficiaryField = (typeof beneficiaryFields)[number];

/** Fields whose value is shown by its last characters alone. */
const secretFields: readonly string[] = ['iban', 'account_number', 'pix_key', 'tax_id'];

export function isSecretField(field: string): boolean {
  return secretFields.includes(field);
}

/**
 * What one field must be in one account. `expected` is a sentence for people;
 * `read` gives the normalised value, or `undefined` when the text is not valid.
 */
export type FieldRule = {
  readonly field: BeneficiaryField;
  readonly required: boolean;
  readonly expected: string;
  /** A regular expression (ECMA-262) that every valid value matches, spaces left out. */
  readonly pattern: string;
  /** A valid value. */
  readonly example: string;
  /** What is stored where the field is not sent. */
  readonly default?: string | undefined;
  readonly read: (text: string) => string | undefined;
  /** Says what is wrong with a text that `read` did not take, when it can be said. */
  readonly fault?: (text: string) => string | undefined;
};

/** Between the wide forms of ASCII (U+FF01 to U+FF5E) and ASCII itself. */
const wideOffset = 0xfee0;

/** Account and bank codes are printed in groups, and in Asia in wide letters; neither means anything. */
export function compact(text: string): string {
  return text
    .replaceAll(/[\uff01-\uff5e]/g, (wide) => String.fromCharCode(wide.charCodeAt(0) - wideOffset))
    .replaceAll(/[\s\p{Pd}]/gu, '')
    .toUpperCase();
}

/** Letters that are read and typed for digits. */
export const digitOf: Readonly<Record<string, string>> = { O: '0', I: '1', L: '1', S: '5', B: '8' };
