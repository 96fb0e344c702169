import { nationalAccounts, nationalCountries, pairFault } from './accountFormat.js';
import { corridorCurrencies } from './corridor.js';
import { nameOf } from './countryName.js';
import {
  type BeneficiaryField,
  beneficiaryFields,
  compact,
  type FieldRule,
  type GivenDetails,
  isSecretField,
  type PartName,
  type PlainField,
  plainFields,
  type SentDetails,
} from './fieldRule.js';
import { acceptsLocalScript, holderRules } from './holder.js';
import { ibanCountries, ibanExample, ibanFault, ibanIssuer, ibanPattern } from './iban.js';
import { latinText } from './latinText.js';
import { plusHint, type Refusal, refuse, shortened } from './refusal.js';

/** The types of account holder. */
export const beneficiaryTypes = ['individual', 'business'] as const;

/** The account types that the payment scheme of at least one country distinguishes. */
export const accountTypes = ['checking', 'savings', 'ordinary', 'current'] as const;

/** Checked and normalised details. `country` is ISO 3166-1 alpha-2, `currency` ISO 4217. */
export type BeneficiaryDetails = {
  readonly type: (typeof beneficiaryTypes)[number];
  readonly name: string;
  readonly country: string;
  readonly currency: string;
  readonly account_type?: (typeof accountTypes)[number];
  readonly address?: { readonly [part in PartName]?: string };
} & { readonly [field in Exclude<PlainField, 'type' | 'account_type'>]?: string };

type Validated = BeneficiaryDetails | readonly Refusal[];
type Rules = readonly FieldRule[];

const countries: readonly string[] = [...new Set([...ibanCountries, ...nationalCountries])].sort();

/** Returns the countries whose accounts can be paid, sorted. */
export function beneficiaryCountries(): readonly string[] {
  return countries;
}

/**
 * Returns the rules of each kind of account in a country, the most common kind first. With a currency, only
 * kinds that receive it are included. Rules are in the order of `beneficiaryFields`. The list is empty
 * if the country's accounts cannot be paid.
 */
export function accountRulesOf(
  country: string,
  currency?: string,
  given: GivenDetails = { sent: {} },
): readonly Rules[] {
  const hasIban = ibanCountries.has(country);
  const national = nationalAccounts(country, hasIban ? ibanIssuer(country) : undefined);
  const byNumber = (national?.accounts ?? []).map((rules) => ({
    rules: [...rules, ...holderRules(country, false, given)],
    currencies: [national?.currency ?? ''],
  }));
  const ofIban = {
    rules: [ibanRule(country), bicRule(country), ...holderRules(country, true, given)],
    currencies: corridorCurrencies(),
  };
  const byIban = hasIban ? [ofIban] : [];
  // An IBAN account receives more currencies, so it comes first if no currency is given.
  return (currency === undefined ? [...byIban, ...byNumber] : [...byNumber, ...byIban])
    .filter(({ currencies }) => currency === undefined || currencies.includes(currency))
    .map(({ rules, currencies }) =>
      inOrder([...identityRules(country, currencies, given.sent.type, currency), ...rules]),
    );
}

function inOrder(rules: Rules): Rules {
  const place = ({ field }: FieldRule) => beneficiaryFields.indexOf(field);
  return rules.toSorted((one, other) => place(one) - place(other));
}

/** Fields that determine the kind of account regardless of the other fields sent. */
const decisiveFields = ['iban', 'pix_key'] as const;

/**
 * Returns the rules of the kind of account that the caller probably means: the one with the decisive field
 * that was sent, else the one that has the most of the fields sent.
 *
 * @param sent the details that are compared first; `given.sent` only breaks ties
 */
function rulesFor(given: GivenDetails, sent: SentDetails = given.sent): Rules | undefined {
  const [country, currency] = [textOf(given.sent, 'country'), textOf(given.sent, 'currency')];
  const kinds = [currency, undefined].flatMap((each) => accountRulesOf(country, each, given));
  const decides = (field: BeneficiaryField) => decisiveFields.some((each) => each === field);
  const shared = (rules: Rules, details: SentDetails) =>
    rules
      .filter(({ field }) => textOf(details, field) !== '')
      .reduce((sum, { field }) => sum + (decides(field) ? beneficiaryFields.length : 1), 0);
  const compare = (one: Rules, other: Rules, details: SentDetails) =>
    shared(other, details) - shared(one, details);
  return kinds.toSorted(
    (one, other) => compare(one, other, sent) || compare(one, other, given.sent),
  )[0];
}

/**
 * Checks the details of a beneficiary by the rules of its country. Returns the normalised details, or all
 * refusals: `parameter_missing`, `parameter_unknown` for a field that its country does not have, and
 * `beneficiary_invalid`. A blank field counts as not sent. Account numbers in refusals are masked.
 *
 * @param today UTC, YYYY-MM-DD
 */
export function validateBeneficiary(sent: SentDetails, today: string): Validated {
  const refusals: Refusal[] = [];
  const values: { [field in BeneficiaryField]?: string } = {};
  const countryRules = rulesFor({ sent, today });
  // Without a known country the account fields are unknown, so only fields common to all are checked.
  for (const rule of countryRules ?? identityRules('DE', corridorCurrencies())) {
    const text = textOf(sent, rule.field);
    const value = text === '' ? rule.default : rule.read(text);
    const hint = sent[rule.field]?.startsWith(' ') && rule.read(`+${text}`) ? plusHint : undefined;
    if (value !== undefined) values[rule.field] = value;
    else if (text !== '' || rule.required) refusals.push({ ...refusalOf(rule, text), hint });
  }
  if (countryRules !== undefined) refusals.push(...unknownFields(sent, countryRules));
  const unpaired = refusals.length === 0 ? pairFault(values) : undefined;
  const account = countryRules?.find(({ field }) => field === 'account_number');
  if (unpaired !== undefined && account !== undefined) {
    refusals.push(refusalOf({ ...account, fault: () => unpaired }, values.account_number ?? ''));
  }

  const { type: _, account_type: accountType, name, country, currency, ...others } = values;
  const type = beneficiaryTypes.find((each) => each === values.type);
  const complete = name !== undefined && country !== undefined && currency !== undefined;
  if (refusals.length > 0 || type === undefined || !complete) return refusals;
  const account_type = accountTypes.find((each) => each === accountType);
  const details = { type, name, country, currency, ...nested(others) };
  return account_type === undefined ? details : { ...details, account_type };
}

/** Moves the parts of the address into one `address` object. */
function nested(values: { readonly [field in BeneficiaryField]?: string }) {
  const { plain = [], parts = [] } = Object.groupBy(Object.entries(values), ([field]) =>
    field.startsWith('address[') ? 'parts' : 'plain',
  );
  const address = Object.fromEntries(parts.map(([field, text]) => [field.slice(8, -1), text]));
  return { ...Object.fromEntries(plain), ...(parts.length === 0 ? {} : { address }) };
}

/** Pairs of a field and a field derived from it, which is outdated when only the first one changes. */
const dependents: readonly (readonly [BeneficiaryField, BeneficiaryField])[] = [
  ['name', 'name_latin'],
  ['name', 'name_kana'],
  ['iban', 'bic'],
];

/**
 * Merges changes into a beneficiary's details and validates the result; returns what `validateBeneficiary`
 * returns. An address is replaced as a whole, a blank removes a detail, and details that a newly chosen
 * account kind or type does not have are dropped. Country and currency cannot change: payouts in flight
 * depend on them.
 */
export function updateDetails(
  { address = {}, ...details }: BeneficiaryDetails,
  sent: SentDetails,
  today: string,
): Validated {
  const moved = (['country', 'currency'] as const).flatMap((param) => {
    const received = textOf(sent, param);
    if (received === '' || received === details[param]) return [];
    const expected = `${details[param]}, as before: an update does not change the ${param}`;
    const hint = 'Create another beneficiary.';
    return [refuse('beneficiary_invalid', { param, expected, received, hint })];
  });
  if (moved.length > 0) return moved;
  const parts = Object.entries(address).map(([part, text]) => [`address[${part}]`, text] as const);
  const before: SentDetails = Object.fromEntries([...Object.entries(details), ...parts]);
  const changes = (field: BeneficiaryField) =>
    sent[field] !== undefined && compact(sent[field]) !== compact(before[field] ?? '');
  const outdated = dependents.flatMap(([field, other]) => (changes(field) ? [other] : []));
  const isReplaced = Object.keys(sent).some((name) => name.startsWith('address'));
  const isKept = (field: BeneficiaryField) =>
    !outdated.includes(field) && !(isReplaced && field.startsWith('address['));
  const { country, currency } = details;
  const kept = fieldsOf(before, isKept);
  const merged = { ...kept, ...sent, country, currency };
  const known = rulesFor({ sent: merged, today }, sent)?.map(({ field }) => field) ?? [];
  return validateBeneficiary(
    fieldsOf(merged, (field) => sent[field] !== undefined || known.includes(field)),
    today,
  );
}

/** Selects some of the details sent. */
function fieldsOf(sent: SentDetails, isWanted: (field: BeneficiaryField) => boolean): SentDetails {
  return Object.fromEntries(
    beneficiaryFields.filter(isWanted).map((field) => [field, sent[field]] as const),
  );
}

/** Masks the secret details for display: account numbers keep only their last characters. */
export function maskedDetails(details: BeneficiaryDetails): BeneficiaryDetails {
  const masked = plainFields.flatMap((field) => {
    const value = details[field];
    return value !== undefined && isSecretField(field) ? [[field, maskedValue(field, value)]] : [];
  });
  return { ...details, ...Object.fromEntries(masked) };
}

/**
 * Returns the name as it is written in the payment and shown on statements: in the script of the country if
 * its scheme supports that, else in Latin letters, up to 140 characters (ISO 20022, Max140Text).
 */
export function nameOnStatement(details: BeneficiaryDetails): string {
  const { name, name_kana, name_latin, country, iban } = details;
  if (iban === undefined && acceptsLocalScript(country)) return name_kana ?? name;
  // Names stored before Latin letters were required are sent unchanged.
  return (latinText(name_latin ?? name, country) ?? name).slice(0, 140);
}

/** Masks a value as "****3000": shows its last four characters, at most half, and none of a date of birth. */
function maskedValue(field: string, value: string): string {
  const start = Math.max(value.length - 4, Math.ceil(value.length / 2));
  return `****${field === 'date_of_birth' ? '' : value.slice(start)}`;
}

function textOf(sent: SentDetails, field: BeneficiaryField): string {
  return sent[field]?.trim() ?? '';
}

function refusalOf(rule: FieldRule, text: string): Refusal {
  const { field: param, example } = rule;
  const hasExample = rule.expected.includes(example) || rule.expected.includes('such as');
  const expected = hasExample ? rule.expected : `${rule.expected} (for example ${example})`;
  if (text === '') return refuse('parameter_missing', { param, expected });
  const received = shown(rule, text);
  return refuse('beneficiary_invalid', { param, expected, received, detail: rule.fault?.(text) });
}

/** Refuses fields that were sent although this kind of account does not have them. */
function unknownFields(sent: SentDetails, rules: Rules): Refusal[] {
  const known: readonly string[] = rules.map((rule) => rule.field);
  const country = textOf(sent, 'country');
  const isOneOfSeveral = accountRulesOf(country).length > 1;
  const decisive = decisiveFields.find((field) => known.includes(field) && textOf(sent, field));
  const subject =
    isOneOfSeveral && decisive !== undefined ? `With ${decisive}, a beneficiary` : 'A beneficiary';
  const ofType = `A beneficiary of the type ${textOf(sent, 'type')}`;
  const expected = [...new Set(known.map((field) => field.replace(/\[.*/, '')))].join(', ');
  return beneficiaryFields
    .filter((field) => !known.includes(field) && textOf(sent, field) !== '')
    .map((field) =>
      refuse('parameter_unknown', {
        param: field,
        expected,
        received: shown({ field, pattern: '^$' }, textOf(sent, field)),
        detail: `${/^(date|registration)_/.test(field) ? ofType : subject} in ${nameOf(country)} has no ${field}: the fields are ${expected}.`,
      }),
    );
}

/**
 * Formats a received value for a refusal, up to 40 characters, which are enough to recognise it. A value of
 * five or more digits that does not match the field's layout is masked too: it may be an account number.
 */
function shown({ field, pattern }: Pick<FieldRule, 'field' | 'pattern'>, text: string): string {
  const code = compact(text);
  const isMisplaced = !new RegExp(pattern).test(code) && (code.match(/\p{Nd}/gu) ?? []).length >= 5;
  const isSecret = isSecretField(field) || isMisplaced;
  return isSecret ? maskedValue(field, text.replaceAll(/[\s-]/g, '')) : shortened(text, 40);
}

function countryRule(country: string): FieldRule {
  return {
    field: 'country',
    required: true,
    expected: 'the two-letter code (ISO 3166-1) of a country that can be paid, such as DE',
    pattern: `^${country}$`,
    example: country,
    read: (text) => (countries.includes(text) ? text : undefined),
    fault: countryFault,
  };
}

/** Makes the rule of a field that accepts one of several values; the first value is the example. */
function choiceRule(
  field: BeneficiaryField,
  values: readonly string[],
  expected: string,
): FieldRule {
  return {
    field,
    required: true,
    expected,
    pattern: `^(${values.join('|')})$`,
    example: values[0] ?? '',
    read: (text) => values.find((value) => value === text),
  };
}

/** Returns the rules common to all countries; `currencies` are those that the country's accounts receive. */
function identityRules(
  country: string,
  currencies: readonly string[],
  type?: string,
  currency = currencies[0] ?? '',
): Rules {
  const others = ibanCountries.has(country) ? ' without an IBAN' : '';
  const payable =
    currencies.length === 1
      ? `${currencies[0]}, the currency of accounts in ${nameOf(country)}${others}`
      : `a currency that can be paid: ${currencies.join(', ')}`;
  return [
    // The examples of one kind of account together have to form a valid beneficiary.
    {
      ...choiceRule('type', beneficiaryTypes, 'individual or business'),
      example: beneficiaryTypes.find((each) => each === type) ?? 'individual',
    },
    {
      field: 'name',
      required: true,
      // ISO 20022 allows 140 characters for the name of a party (Max140Text).
      expected: "the account holder's name, 1 to 140 characters without control characters",
      pattern: '^.{1,140}$',
      example: 'Ada Lovelace',
      read: (text) => (/^\P{Cc}{1,140}$/u.test(text) ? text : undefined),
    },
    countryRule(country),
    { ...choiceRule('currency', currencies, payable), example: currency },
  ];
}

/** Returns a sentence about a country that cannot be paid, or about the country that was probably meant. */
function countryFault(text: string): string | undefined {
  const wanted = text.toLowerCase();
  const meant = countries.find((code) =>
    [code, nameOf(code).replace('the ', '')].some((known) => known.toLowerCase() === wanted),
  );
  // People write UK for the United Kingdom; ISO 3166-1 reserves that code, so no other country has it.
  const code = wanted === 'uk' ? 'GB' : meant;
  if (code !== undefined)
    return `country must be an ISO 3166-1 code: send ${code} for ${nameOf(code)}.`;
  return /^[A-Z]{2}$/.test(text) ? `Accounts in ${nameOf(text)} cannot be paid.` : undefined;
}

/** Returns the refusal of a country that has no rules. */
export function refuseCountry(country: string): Refusal {
  return refusalOf(countryRule(country), country);
}

/** Checks an IBAN (ISO 13616): country, length, national layout and check digits (ISO 7064 mod 97-10). */
function ibanRule(country: string): FieldRule {
  const issuer = ibanIssuer(country);
  const example = ibanExample(issuer);
  return {
    field: 'iban',
    required: true,
    expected: `an IBAN that starts with ${issuer} and has ${example.length} characters`,
    pattern: ibanPattern(issuer),
    example,
    read: (text) =>
      sentenceOfIban(compact(text), country) === undefined ? compact(text) : undefined,
    fault: (text) => sentenceOfIban(compact(text), country),
  };
}

/** Returns a sentence about the fault of an IBAN in this country, or undefined if the IBAN is valid. */
function sentenceOfIban(iban: string, country: string): string | undefined {
  const issuer = ibanIssuer(country);
  const prefix = iban.slice(0, 2);
  const startsWith = `IBANs of accounts in ${nameOf(country)} start with ${issuer}`;
  if (prefix !== issuer) {
    const isForeign = ibanCountries.has(prefix) && prefix !== country;
    if (isForeign) return `${startsWith}; this one is from ${nameOf(prefix)}.`;
    return /^\d/.test(iban) ? `${startsWith}; this is an account number.` : `${startsWith}.`;
  }
  switch (ibanFault(iban, issuer)) {
    case 'length':
      return `The IBAN has ${iban.length} characters instead of ${ibanExample(issuer).length}.`;
    case 'letter':
      return 'The IBAN has a letter where a digit belongs, such as O for 0 or I for 1.';
    case 'layout':
      return `The letters and digits of the IBAN do not follow the format of IBANs from ${nameOf(issuer)}.`;
    case 'check':
      return 'The check digits of the IBAN are wrong: a character is wrong or two are swapped.';
    case 'national_check':
      return 'The national check digits of the IBAN are wrong: a character is wrong or two are swapped.';
    case undefined:
      return undefined;
  }
}

/** Checks a BIC (ISO 9362): four letters, the country, two characters and optionally three more. */
function bicRule(country: string): FieldRule {
  const issuer = ibanIssuer(country);
  const places = issuer === country ? [country] : [country, issuer];
  const pattern = `^[A-Z]{4}(${places.join('|')})[A-Z0-9]{2}([A-Z0-9]{3})?$`;
  return {
    field: 'bic',
    required: false,
    expected: `a BIC of 8 or 11 characters, of which the fifth and sixth are ${places.join(' or ')}`,
    pattern,
    example: `ABCD${country}2A`,
    read: (text) => (new RegExp(pattern).test(compact(text)) ? compact(text) : undefined),
  };
}
