import { z } from 'zod';
import { batchModes, maximumBatchItems } from '../domain/batch.js';
import { accountTypes, beneficiaryCountries, beneficiaryTypes } from '../domain/beneficiary.js';
import { corridorCurrencies } from '../domain/corridor.js';
import { eventTypes, maximumRedelivered } from '../domain/event.js';
import { type PlainField, partNames, plainFields } from '../domain/fieldRule.js';
import { iso4217 } from '../domain/iso4217.js';
import { minorUnitsExpected } from '../domain/money.js';
import { apiVersions, versionExpected } from './versions/index.js';

/** A number as it was written in a JSON body: `1.0`, `1e3` and `1` stay three different texts. */
export class DecodedNumber {
  constructor(readonly text: string) {}
}

/**
 * The parameters of every request. The error message of a schema is the text that a refusal shows as
 * `expected`. A form sends text and JSON may send numbers; both give the same values. `meta` holds what zod
 * cannot express in JSON Schema.
 */

/** The largest amount. A JSON number holds it, and every fee for it, exactly. */
const maximumAmount = 10n ** 14n;

/** The digits of a number. JSON may send them as a string or as a number. */
const numeral = (form: RegExp, expected: string) =>
  z
    .union([z.string(), z.instanceof(DecodedNumber)], expected)
    .transform((sent) => (typeof sent === 'string' ? sent : sent.text))
    .refine((sent) => form.test(sent), { error: expected, abort: true });

/** Describes an integer that JSON may send as a string as well. */
const integer = (description: string, minimum: number, maximum: number, pattern: string) => ({
  description,
  anyOf: [
    { type: 'integer', minimum, maximum },
    { type: 'string', pattern },
  ],
});

const amountExpected = minorUnitsExpected('USD');
const amountWithin = `an integer of at most ${maximumAmount}`;
const amount = numeral(/^[1-9]\d*$/, amountExpected)
  .refine((digits) => digits.length <= 15 && BigInt(digits) <= maximumAmount, amountWithin)
  .transform((digits) => BigInt(digits))
  .meta(integer(amountExpected, 1, Number(maximumAmount), '^([1-9][0-9]{0,13}|10{14})$'));

const currencyExpected = 'an ISO 4217 currency code in capitals, such as EUR';
/** Any currency there is: an account may hold it, and lists may be filtered by it. */
export const currency = z.enum([...iso4217.keys()], currencyExpected).describe(currencyExpected);

/** A currency to pay in. If it has no corridor, the route refuses it as unsupported, not as unknown. */
const paidCurrency = currency.meta({ enum: corridorCurrencies() });

/** Parameters that many requests share, by their names in the published document. */
export const sharedParams = {
  amount_param: amount,
  currency_param: paidCurrency,
  any_currency_param: currency,
} as const;

/** A string that matches a pattern. `expected` is the message for all other strings and types. */
export const matching = (form: RegExp, expected: string) =>
  z.string(expected).regex(form, expected).describe(expected);

export const idOf = (prefix: string, what: string) =>
  matching(
    new RegExp(`^${prefix}_[0-9a-z]{1,64}$`),
    `the id of ${/^[aeiou]/.test(what) ? 'an' : 'a'} ${what} (${prefix}_…)`,
  );

/**
 * Characters refused in text. On some rails a line break in a remittance text starts a new field; the others
 * change how the text reads.
 */
const refusedInText = String.raw`\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069`;
/** Written so that every language can read it, because the document publishes it. */
const plainText = new RegExp(`^[^${refusedInText}]*$`);

export const text = (least: number, most: number) => {
  const length = least === 0 ? `up to ${most}` : `${least} to ${most}`;
  const expected = `text of ${length} characters without line breaks or other control characters`;
  const plain = z
    .string(expected)
    .min(least, expected)
    .max(most, expected)
    .regex(plainText, expected);
  if (least === 0) return plain.describe(expected);
  const pattern = `^[^${refusedInText}]*[^\\s${refusedInText}][^${refusedInText}]*$`;
  return plain.refine((sent) => /\S/.test(sent), expected).meta({ description: expected, pattern });
};

const fixedSide = z.enum(['source', 'destination'], 'source or destination');

/**
 * Maximum size of metadata: a page of 100 payouts repeats that of each, and may wait in memory to be read.
 */
const metadataBytes = 8 * 1024;

const metadataExpected = `an object with at most 50 keys of at most 40 characters, each with a string of at most 500 characters, at most ${metadataBytes} bytes as JSON in total, such as {"order": "7"}`;
export const metadata = z
  .record(text(1, 40), text(0, 500), metadataExpected)
  .refine((record) => Object.keys(record).length <= 50, metadataExpected)
  .refine((record) => Buffer.byteLength(JSON.stringify(record)) <= metadataBytes, metadataExpected)
  .meta({ description: metadataExpected, maxProperties: 50 });

export const quoteParams = z.strictObject({
  source_currency: paidCurrency,
  destination_currency: paidCurrency,
  amount,
  fixed_side: fixedSide.default('source'),
});

/** Either `quote`, or the other four for the live rate. The route checks which of them were sent. */
export const payoutParams = z.strictObject({
  quote: idOf('qt', 'quote').optional(),
  source_currency: paidCurrency.optional(),
  destination_currency: paidCurrency.optional(),
  amount: amount.optional(),
  fixed_side: fixedSide.optional(),
  beneficiary: idOf('bnf', 'beneficiary'),
  reference: text(1, 140).optional(),
  metadata: metadata.optional(),
  retry_of: idOf('po', 'payout that failed, was canceled or was returned')
    .optional()
    .describe('A payout that failed, was canceled or was returned, and has not been retried yet.'),
});
export type PayoutParams = z.infer<typeof payoutParams>;

/** The quotes of an Idempotency-Key header are stripped, so a quoted key here would be a different key. */
const isUnquoted = (key: string) => !/^".*"$/.test(key);
const unquotedKey = '1 to 255 visible ASCII characters, without quotes around them';
const itemKey = matching(/^[\x21-\x7e]{1,255}$/, unquotedKey).refine(isUnquoted, unquotedKey);
export const batchItemParams = z.strictObject(
  { ...payoutParams.omit({ retry_of: true }).shape, idempotency_key: itemKey.optional() },
  'an object with the parameters of a payout',
);
export type BatchItemParams = z.infer<typeof batchItemParams>;

const batchExpected = `a list of 1 to ${maximumBatchItems.toLocaleString('en')} payouts`;

const truth = z
  .custom<boolean | 'true' | 'false'>(
    (sent) => [true, false, 'true', 'false'].some((value) => value === sent),
    'true or false',
  )
  .transform((value) => value === true || value === 'true')
  .meta({ type: 'boolean' });

export const batchParams = z.strictObject({
  payouts: z
    .array(batchItemParams, batchExpected)
    .min(1, batchExpected)
    .max(maximumBatchItems, batchExpected),
  mode: z.enum(batchModes, 'best_effort or all_or_nothing').default('best_effort'),
  validate_only: truth
    .default(false)
    .describe('true returns a preview and stores nothing (requires scope read)'),
});
export type BatchParams = z.infer<typeof batchParams>;

/** A batch whose items are validated separately: 10,000 at once would block all other requests. */
export const batchEnvelope = batchParams.extend({
  payouts: z.custom<object>(
    (sent) => Array.isArray(sent) && sent.length > 0 && sent.length <= maximumBatchItems,
    batchExpected,
  ),
});

/** Describes each field of a beneficiary for readers of the published document. */
const beneficiaryHints: Readonly<Record<PlainField, z.GlobalMeta>> = {
  type: { enum: [...beneficiaryTypes] },
  name: { description: 'The account holder.' },
  country: { enum: beneficiaryCountries(), description: 'Country of the account (ISO 3166-1).' },
  currency: { enum: corridorCurrencies(), description: 'Currency of the account (ISO 4217).' },
  name_kana: { description: "Japan: the account holder's name in katakana." },
  iban: { description: 'For accounts in countries of the IBAN registry.' },
  bic: { description: 'Optional with an IBAN; required in MY, PH; replaces bank_code in VN.' },
  account_number: { description: 'For accounts without an IBAN; in Mexico, the CLABE.' },
  routing_number: {
    description: 'ABA routing number (US), sort code (GB), BSB (AU), IFSC (IN), branch code (ZA).',
  },
  bank_code: { description: 'The code of the bank; in GH and KE, the mobile money operator.' },
  branch_code: { description: 'BR, CA (transit number), JP, SG: the code of the branch.' },
  account_type: { enum: [...accountTypes], description: 'BR, CO, JP, US: the kind of account.' },
  pix_key: { description: 'Brazil: instead of the bank, branch and account number.' },
  tax_id: { description: "The holder's CPF or CNPJ (BR), RUT (CL), CC or NIT (CO)." },
  name_latin: { description: 'Required if the payment cannot carry the letters of name.' },
  date_of_birth: { description: 'Individuals only: YYYY-MM-DD.' },
  registration_number: { description: 'Businesses only: the number in the business register.' },
};

/** All fields are text here. The domain decides which of them belong together. */
const detailsAs = (detail: z.ZodType) => ({
  ...Object.fromEntries(
    plainFields.map((field) => [field, detail.optional().meta(beneficiaryHints[field])]),
  ),
  address: z
    .strictObject(
      Object.fromEntries(partNames.map((part) => [part, detail.optional()])),
      `an object with the parts of an address: ${partNames.join(', ')}`,
    )
    .meta({ description: 'With at least a town and a country; required in Canada.' })
    .optional(),
});
export const beneficiaryParams = z
  .strictObject(detailsAs(text(1, 140)))
  .meta({ required: ['type', 'name', 'country', 'currency'] });

const changes = detailsAs(text(0, 140).nullable());

/** The fields of a beneficiary to change. A blank or null removes a field. */
export const beneficiaryUpdateParams = z.strictObject({
  ...changes,
  address: changes.address.nullable(),
});

export const fundParams = z.strictObject({ currency, amount });

/** Event types that an endpoint may subscribe to. `*` is all events, including types that are added later. */
const subscribableTypes = ['*', ...eventTypes] as const;

const eventExpected = `one of * (all events), ${eventTypes.join(', ')}`;
const eventsExpected = `a list of events, each ${eventExpected}`;
export const webhookEndpointParams = z.strictObject({
  url: text(1, 2_048),
  events: z
    .array(z.enum(subscribableTypes, eventExpected), eventsExpected)
    .min(1, eventsExpected)
    .max(subscribableTypes.length, eventsExpected)
    .refine(
      (events) => new Set(events).size === events.length,
      'a list in which each event is named once',
    )
    .meta({ uniqueItems: true }),
  signature: z.enum(['v1', 'v1a'], 'v1, or v1a to verify by public key as well').default('v1'),
  batching: truth.default(false).describe('true sends up to 100 events in one request'),
  description: text(0, 200).optional(),
});

/** The fields of an endpoint to change. */
export const webhookEndpointUpdateParams = webhookEndpointParams.partial().extend({
  // Without their defaults, which would overwrite a field that was not sent.
  signature: webhookEndpointParams.shape.signature.unwrap().optional(),
  batching: truth.optional().describe('true sends up to 100 events in one request'),
  status: z.enum(['enabled', 'disabled'], 'enabled or disabled').optional(),
  api_version: z.enum(apiVersions, versionExpected).optional(),
});

const overlapExpected = 'a whole number of hours from 0 to 168';
export const rotateSecretParams = z.strictObject({
  overlap_hours: numeral(/^(0|[1-9]\d?|1[0-5]\d|16[0-8])$/, overlapExpected)
    .transform(Number)
    .prefault('24')
    .meta(integer(overlapExpected, 0, 168, '^(0|[1-9][0-9]?|1[0-5][0-9]|16[0-8])$')),
});

export const redeliverEventParams = z.strictObject({
  webhook_endpoint: idOf('we', 'webhook endpoint').optional(),
});

/** RFC 3339, to the millisecond: no time here is more precise than that. */
const timePattern =
  '^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,3})?)?(Z|[+-][0-9]{2}:[0-9]{2}))?$';
export const timeExpected =
  'a time with Z or an offset, such as 2026-11-21T12:00:00Z, or a date such as 2026-11-21';
/** Parses a time, or a date that `ofDay` completes. Without `ofDay`, a date means its start in UTC. */
export const time = (ofDay = '') =>
  z
    .string(timeExpected)
    .regex(new RegExp(timePattern), timeExpected)
    .pipe(z.union([z.iso.datetime({ offset: true }), z.iso.date()], timeExpected))
    .transform((sent) => new Date(sent.length > 10 ? sent : sent + ofDay))
    // PostgreSQL has no year 0, and years of five digits are not supported.
    .refine((at) => /^(?!0000)\d/.test(at.toISOString()), timeExpected);

const sequenceExpected = 'the sequence of an event, such as 17';
const sequence = numeral(/^[1-9]\d{0,14}$/, sequenceExpected)
  .transform((sent) => BigInt(sent))
  .optional()
  .meta(integer(sequenceExpected, 1, 1e15 - 1, '^[1-9][0-9]{0,14}$'));

const isRange = (from: bigint, to: bigint) => to >= from && to < from + BigInt(maximumRedelivered);

/** Either `since`, or both ends of a range. The route refuses both together. */
export const redeliverFailedParams = z
  .strictObject({
    // There were no events before 1970, and the time that an ID begins with cannot be earlier.
    since: time()
      .refine((at) => at.getTime() >= 0, timeExpected)
      .optional()
      .meta({ description: timeExpected }),
    from_sequence: sequence,
    to_sequence: sequence,
  })
  .refine(({ since, from_sequence: from, to_sequence: to }) => since ?? (from && to), {
    path: ['since'],
    error: `${timeExpected}, or both from_sequence and to_sequence`,
  })
  .refine(({ from_sequence: from, to_sequence: to }) => !from || !to || isRange(from, to), {
    path: ['to_sequence'],
    error: `at least from_sequence, and less than from_sequence + ${maximumRedelivered.toLocaleString('en')}`,
  });

export const accountParams = z.strictObject({
  api_version: z.enum(apiVersions, versionExpected),
});

export const noParams = z.strictObject({});
