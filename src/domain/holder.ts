import { nameOf } from './countryName.js';
import { beneficiaryFields, type FieldRule, type GivenDetails } from './fieldRule.js';
import formats from './holderFormats.json' with { type: 'json' };
import { latinText } from './latinText.js';

/** Who holds an account, beyond the name: the file says what each field is, and the sources of it. */
type HolderFormat = Pick<FieldRule, 'pattern' | 'expected' | 'example'> & {
  /** The type of beneficiary that does not have the field. */
  readonly not?: string;
  /** A text is sent in the letters of the rail, a code in capitals. */
  readonly form?: string;
};

const fields: ReadonlyMap<string, HolderFormat> = new Map(Object.entries(formats.fields));
const required: ReadonlyMap<string, readonly string[]> = new Map(Object.entries(formats.required));
const places: ReadonlyMap<string, Partial<HolderFormat>> = new Map(Object.entries(formats.places));

/** Whether the accounts of a country that have no IBAN are paid in its own script. */
export const carriesLocalScript = (country: string) => formats.localScripts.includes(country);

/**
 * The rules of the holder of an account. An address is required where the scheme refuses a payment
 * without one, and else it is optional as a whole.
 *
 * @param isIban whether the account is given by its IBAN
 */
export function holderRules(
  country: string,
  isIban: boolean,
  { sent, today }: GivenDetails,
): readonly FieldRule[] {
  const isLatin = isIban || !carriesLocalScript(country);
  const place = sent['address[country]']?.trim() || country;
  const isSent = beneficiaryFields.some((field) => /^address/.test(field) && sent[field]?.trim());
  const needed = [...(required.get(country) ?? (isSent ? formats.requiredWithAddress : []))];
  // Without a name, that is what is missing.
  if (latinText(sent.name?.trim() || 'A', country) === undefined) needed.push('name_latin');
  return beneficiaryFields.flatMap((field) => {
    const format = fields.get(field);
    if (format === undefined || format.not === (sent.type ?? '')) return [];
    if (field === 'name_latin' && !isLatin) return [];
    const rule = {
      ...{ field, ...format, required: needed.includes(field) },
      ...(field === 'address[post_code]' ? postCodeOf(place) : {}),
      ...(field === 'address[country]' ? { example: country } : {}),
    };
    // A name is written as in the country of the account, wherever its holder lives.
    const reader = readerOf(rule, isLatin, field === 'name_latin' ? country : place, today);
    return [{ ...rule, pattern: `^(?:${rule.pattern})$`, ...reader }];
  });
}

/** How a field is read. */
function readerOf(
  { field, pattern, form }: HolderFormat & Pick<FieldRule, 'field'>,
  isLatin: boolean,
  place: string,
  today?: string,
): Pick<FieldRule, 'read' | 'fault'> {
  const layout = new RegExp(`^(?:${pattern})$`, 'u');
  const written = (text: string) => {
    const plain = text.normalize('NFKC');
    if (form === 'code') return plain.toUpperCase();
    return form === 'text' && isLatin ? latinText(plain, place) : plain;
  };
  const isReal = (value: string) =>
    (field !== 'date_of_birth' || isDayBefore(value, today)) &&
    (field !== 'address[country]' || places.has(value));
  return {
    read: (text) => {
      const value = written(text);
      return value !== undefined && layout.test(value) && isReal(value) ? value : undefined;
    },
    fault: (text) =>
      written(text) === undefined
        ? `${field} has letters that the payment cannot carry: send it in Latin letters.`
        : undefined,
  };
}

/** The form of the country's post codes; one that has none takes any. */
function postCodeOf(country: string): Partial<HolderFormat> {
  const { pattern, example } = places.get(country) ?? {};
  if (pattern === undefined || example === undefined) return {};
  return { pattern, example, expected: `a post code of ${nameOf(country)}, such as ${example}` };
}

/** Whether it is in the calendar; where rules are only listed, no day is today. */
function isDayBefore(text: string, today = '9999-12-31'): boolean {
  const day = new Date(text);
  return !Number.isNaN(day.valueOf()) && day.toISOString().startsWith(text) && text < today;
}
