import { nameOf } from './countryName.js';
import { isDay } from './day.js';
import { beneficiaryFields, type FieldRule, type GivenDetails } from './fieldRule.js';
import formats from './holderFormats.json' with { type: 'json' };
import { latinText } from './latinText.js';

/** Format of a field about the account holder other than the name. holderFormats.json names the sources. */
type HolderFormat = Pick<FieldRule, 'pattern' | 'expected' | 'example'> & {
  /** The type of beneficiary that does not have the field. */
  readonly not?: string;
  /** `text` is converted to characters that the rail accepts, `code` to upper case. */
  readonly form?: string;
};

const fields: ReadonlyMap<string, HolderFormat> = new Map(Object.entries(formats.fields));
const required: ReadonlyMap<string, readonly string[]> = new Map(Object.entries(formats.required));
const places: ReadonlyMap<string, Partial<HolderFormat>> = new Map(Object.entries(formats.places));

/** Whether payments to a country's accounts without an IBAN are written in its own script. */
export const acceptsLocalScript = (country: string) => formats.localScripts.includes(country);

/**
 * Returns the rules for the holder of an account. An address is required if the scheme refuses payments
 * without one; otherwise the whole address is optional.
 *
 * @param isIban whether the account is identified by an IBAN
 */
export function holderRules(
  country: string,
  isIban: boolean,
  { sent, today }: GivenDetails,
): readonly FieldRule[] {
  const isLatin = isIban || !acceptsLocalScript(country);
  const place = sent['address[country]']?.trim() || country;
  const isSent = beneficiaryFields.some((field) => /^address/.test(field) && sent[field]?.trim());
  const needed = [...(required.get(country) ?? (isSent ? formats.requiredWithAddress : []))];
  // Without a name, `A` is tested: the refusal should report only the missing name, not `name_latin` too.
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
    // Names are transliterated by the rules of the account's country, wherever the holder lives.
    const reader = readerOf(rule, isLatin, field === 'name_latin' ? country : place, today);
    return [{ ...rule, pattern: `^(?:${rule.pattern})$`, ...reader }];
  });
}

/** Returns the functions that normalise and check a field. */
function readerOf(
  { field, pattern, form }: HolderFormat & Pick<FieldRule, 'field'>,
  isLatin: boolean,
  place: string,
  // Where rules are only listed, no day is too late.
  today = '9999-12-31',
): Pick<FieldRule, 'read' | 'fault'> {
  const layout = new RegExp(`^(?:${pattern})$`, 'u');
  const written = (text: string) => {
    const plain = text.normalize('NFKC');
    if (form === 'code') return plain.toUpperCase();
    return form === 'text' && isLatin ? latinText(plain, place) : plain;
  };
  const isReal = (value: string) =>
    (field !== 'date_of_birth' || (isDay(value) && value < today)) &&
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

/** Returns the format of the country's post codes; without a known format any post code is accepted. */
function postCodeOf(country: string): Partial<HolderFormat> {
  const { pattern, example } = places.get(country) ?? {};
  if (pattern === undefined || example === undefined) return {};
  return { pattern, example, expected: `a post code of ${nameOf(country)}, such as ${example}` };
}
