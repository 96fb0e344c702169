/** The parts of a postal address, as ISO 20022 has them. */
export const partNames = ['street', 'building', 'town', 'post_code', 'region', 'country'] as const;

export type PartName = (typeof partNames)[number];

/** The parameters that describe a beneficiary, but for its address. */
export const plainFields = [
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
  'name_latin',
  'date_of_birth',
  'registration_number',
] as const;

export type PlainField = (typeof plainFields)[number];

export type BeneficiaryField = PlainField | `address[${PartName}]`;

/** Every parameter that describes a beneficiary; which of them apply is up to its account. */
export const beneficiaryFields: readonly BeneficiaryField[] = [
  ...plainFields,
  ...partNames.map((part) => `address[${part}]` as const),
];

/** The details as sent: any text in any field, or nothing. */
export type SentDetails = { readonly [field in BeneficiaryField]?: string | undefined };

/** What rules may depend on. `today` is a UTC day, YYYY-MM-DD; without one no date is too late. */
export type GivenDetails = { readonly sent: SentDetails; readonly today?: string };

/** Fields whose value is shown by its last characters alone, or not at all. */
export const secretFields: readonly string[] = [
  'iban',
  'account_number',
  'pix_key',
  'tax_id',
  'date_of_birth',
  'registration_number',
];

export const isSecretField = (field: string) => secretFields.includes(field);

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
