import { z } from 'zod';
import { batchStatuses } from '../domain/batch.js';
import { beneficiaryTypes } from '../domain/beneficiary.js';
import { eventTypes } from '../domain/event.js';
import { entryKinds } from '../domain/ledger.js';
import { payoutStatuses } from '../domain/payout.js';
import { currency, idOf, matching, metadata, text, time, timeExpected } from './params.js';

/** The query parameters of every list: its page and its filters. */

/** A number in a query, where it is text. The document describes it as a number. */
const digits = (form: RegExp, expected: string, least: number, most: number) =>
  z
    .string(expected)
    .refine((sent) => form.test(sent) && Number(sent) <= most, expected)
    .meta({ type: 'integer', description: expected, minimum: least, maximum: most });

const limit = digits(/^([1-9]\d?|100)$/, 'a number from 1 to 100', 1, 100)
  .default('20')
  .meta({ default: 20 })
  .transform(Number);

/** Where a page begins: directly after or before an object of the list. */
function pageParams<T extends z.ZodType>(id: T) {
  return { limit, starting_after: id.optional(), ending_before: id.optional() };
}

/** Completes a date in `gt` and `lte`, which compare with the last moment of that day. */
const lastMoment = 'T23:59:59.999Z';
const bound = (endOfDay?: string) => time(endOfDay).optional().meta({ description: timeExpected });

const createdExpected = 'sent as created[gte], created[gt], created[lte] or created[lt]';
const created = z
  .strictObject(
    { gte: bound(), gt: bound(lastMoment), lte: bound(lastMoment), lt: bound() },
    createdExpected,
  )
  .optional();

const oneOf = <const Names extends readonly string[]>(names: Names) =>
  z.enum(names, `one of ${names.join(', ')}`);

/** Payouts with any of several statuses: `status=failed&status=returned`. */
const statuses = z
  .array(oneOf(payoutStatuses), `one or more of ${payoutStatuses.join(', ')}`)
  .min(1)
  .max(payoutStatuses.length, 'a list in which each status is named once')
  .optional();

/** The kinds of objects that a payout references by ID and that can be returned in place of the ID. */
export const expandable = ['beneficiary', 'quote', 'batch'] as const;
export type Expandable = (typeof expandable)[number];

const expandExpected = `a list of ${expandable.join(', ')}`;
const expand = z
  .array(oneOf(expandable), expandExpected)
  .max(expandable.length, expandExpected)
  .default([]);

export const payoutReadParams = z.strictObject({ expand });

export const payoutListParams = z.strictObject({
  ...pageParams(idOf('po', 'payout')),
  expand,
  created,
  status: statuses,
  source_currency: currency.optional(),
  destination_currency: currency.optional(),
  reference: text(1, 140).optional(),
  beneficiary: idOf('bnf', 'beneficiary').optional(),
  batch: idOf('bat', 'batch').optional(),
  metadata: metadata.optional(),
});

export const batchListParams = z.strictObject({
  ...pageParams(idOf('bat', 'batch')),
  created,
  status: oneOf(batchStatuses).optional(),
});

/** Pages of a batch follow the order of the request, not that of creation, so there is no `ending_before`. */
export const batchItemListParams = z.strictObject({
  limit,
  starting_after: idOf('po', 'payout').optional(),
  status: statuses,
});

export const beneficiaryListParams = z.strictObject({
  ...pageParams(idOf('bnf', 'beneficiary')),
  created,
  currency: currency.optional(),
});

export const webhookEndpointListParams = z.strictObject({
  ...pageParams(idOf('we', 'webhook endpoint')),
  created,
  status: oneOf(['unverified', 'enabled', 'disabled']).optional(),
});

/** An endpoint's deliveries continue after the event of one of them. */
export const deliveryListParams = z.strictObject({
  limit,
  starting_after: idOf('evt', 'event').optional(),
  status: oneOf(['pending', 'delivered', 'failed', 'exhausted', 'canceled']).optional(),
});

export const eventListParams = z.strictObject({
  ...pageParams(idOf('evt', 'event')),
  /** Turns the list into the feed: oldest first and without gaps. */
  after: digits(/^\d{1,18}$/, 'the sequence of an event, or 0', 0, Number.MAX_SAFE_INTEGER)
    .transform((sent) => BigInt(sent))
    .optional(),
  created,
  type: oneOf(eventTypes).optional(),
  payout: idOf('po', 'payout').optional(),
  /** Only the batch's own event, not those of its payouts. */
  batch: idOf('bat', 'batch').optional(),
});

export const balanceTransactionListParams = z.strictObject({
  ...pageParams(matching(/^txn_\d{1,18}$/, 'the id of a balance transaction (txn_…)')),
  created,
  currency: currency.optional(),
  payout: idOf('po', 'payout').optional(),
  type: oneOf(entryKinds).optional(),
});

export const corridorListParams = z.strictObject({
  source_currency: currency.optional(),
  destination_currency: currency.optional(),
});

/** `created` filters by publication: every list of this API is filtered by the time that orders it. */
export const pastRateListParams = z.strictObject({
  ...pageParams(matching(/^rate_\d{1,18}$/, 'the id of a past rate (rate_…)')),
  created,
  source_currency: currency,
  destination_currency: currency,
});

export const requirementsParams = z.strictObject({
  country: matching(/^[A-Z]{2}$/, 'an ISO 3166-1 country code in capitals, such as DE'),
  currency: currency.optional(),
  type: z.enum(beneficiaryTypes, 'individual or business').default('individual'),
});
