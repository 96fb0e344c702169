/** The parts of a postal address in ISO 20022. */
export const partNames = ['street', 'building', 'town', 'post_code', 'region', 'country'] as const;

export type PartName = (typeof partNames)[number];

/** The parameters that describe a beneficiary, except its address. */
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

/** Every parameter that describes a beneficiary. The kind of account determines which of them apply. */
export const beneficiaryFields: readonly BeneficiaryField[] = [
  ...plainFields,
  ...partNames.map((part) => `address[${part}]` as const),
];

/** The details as sent, unchecked: each field may contain any text or be absent. */
export type SentDetails = { readonly [field in BeneficiaryField]?: string | undefined };

/** The input that rules may depend on. `today` is a UTC day, YYYY-MM-DD; without it no date is too late. */
export type GivenDetails = { readonly sent: SentDetails; readonly today?: string };

/** Fields whose value is masked: only its last characters are shown, or none. */
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
 * The rule for one field of one kind of account. `expected` describes valid values for people; `read`
 * returns the normalised value, or `undefined` if the text is not valid.
 */
export type FieldRule = {
  readonly field: BeneficiaryField;
  readonly required: boolean;
  readonly expected: string;
  /** A regular expression (ECMA-262) that every valid value matches once its spaces are removed. */
  readonly pattern: string;
  /** A valid value. */
  readonly example: string;
  /** The value stored if the field is not sent. */
  readonly default?: string | undefined;
  readonly read: (text: string) => string | undefined;
  /** Returns a sentence about the fault of a text that `read` rejected, if the fault is recognised. */
  readonly fault?: (text: string) => string | undefined;
};

/** Distance from ASCII to the full-width forms of ASCII (U+FF01 to U+FF5E). */
const wideOffset = 0xfee0;

/** Removes grouping (spaces, dashes) and full-width forms: codes are often printed so, without meaning. */
export function compact(text: string): string {
  return text
    .replaceAll(/[\uff01-\uff5e]/g, (wide) => String.fromCharCode(wide.charCodeAt(0) - wideOffset))
    .replaceAll(/[\s\p{Pd}]/gu, '')
    .toUpperCase();
}

/** Digits by the letters that people misread or mistype for them. */
export const digitOf: Readonly<Record<string, string>> = { O: '0', I: '1', L: '1', S: '5', B: '8' };
