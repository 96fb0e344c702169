import { z } from 'zod';
import { batchModes, batchStatuses } from '../domain/batch.js';
import { eventBatch, eventTypes, probeTypes } from '../domain/event.js';
import { entryKinds } from '../domain/ledger.js';
import { payoutStatuses } from '../domain/payout.js';
import { refusalCodes } from '../domain/refusal.js';
import { beneficiary, requirements } from './beneficiarySchemas.js';
import {
  delivery,
  deliveryWithAttempts,
  redelivery,
  webhookChallenge,
  webhookTest,
} from './deliverySchemas.js';
import { count, currency, decimal, deleted, idOf, money, objectOf, time } from './shapes.js';
import type { ApiVersion } from './versions/index.js';

/**
 * The schemas of all responses. The functions of objects.ts return these types, the published document is
 * generated from them, and the tests check every response against that document.
 */

const minorUnits = z
  .int()
  .min(1)
  .max(1e14)
  .describe('As requested, in minor units of the currency of the fixed side.');
const rateSource = z.object({ provider: z.string(), as_of: time });
const arrival = (what: string) =>
  time.nullable().describe(`${what} End of a business day; null if bank holidays are unknown.`);
const fixedSide = z.enum(['source', 'destination']);
/** `exact` is how a version writes a rate and a fee: as a number, or as a decimal string. */
function quoteWith<Exact extends z.ZodType>(exact: Exact) {
  return objectOf('quote', {
    id: idOf('qt'),
    status: z.enum(['open', 'used', 'expired']),
    source_currency: currency,
    destination_currency: currency,
    fixed_side: fixedSide,
    amount: minorUnits,
    source_amount: money.describe('Debited from the balance, fee included.'),
    fee: exact.describe('Major units of the source currency; included in source_amount.'),
    rate: exact.describe('The exchange rate, held until expires_at.'),
    mid_rate: decimal.describe('The mid-market rate, before the spread.'),
    rate_source: rateSource,
    receive_amount: money.describe('The amount the beneficiary receives.'),
    payout: idOf('po').nullable().describe('The payout that used the quote.'),
    created_at: time,
    expires_at: time.describe('30 seconds after created_at.'),
    estimated_arrival: arrival('The latest arrival of a payout accepted before expires_at.'),
  });
}

function rateWith<Exact extends z.ZodType>(exact: Exact) {
  return objectOf('rate', {
    source_currency: currency,
    destination_currency: currency,
    rate: exact.describe('The rate of a quote created now: the mid rate less the spread.'),
    mid_rate: decimal.describe('The mid-market rate, before the spread.'),
    spread_basis_points: z.int(),
    rate_source: rateSource,
  });
}

const half = z.object({ id: idOf('rate'), per_euro: decimal, as_of: time });
const pastRate = objectOf('past_rate', {
  id: idOf('rate').describe('The id of the later of the two rates.'),
  source_currency: currency,
  destination_currency: currency,
  mid_rate: decimal.describe('destination_rate.per_euro divided by source_rate.per_euro.'),
  provider: z.string(),
  as_of: time.describe('When the provider published the later rate.'),
  received_at: time.describe('When Corridor received the later rate.'),
  source_rate: half,
  destination_rate: half,
});

const calculation = objectOf('calculation', {
  steps: z.array(
    z.object({
      step: z.enum(['fee', 'net_amount', 'mid_rate', 'rate', 'receive_amount']),
      result: z.string().describe('An amount in major units of the currency, or a rate.'),
      currency: currency.nullable().describe('Null for a rate.'),
      rule: z.string().describe('How the result is computed from the inputs.'),
      inputs: z
        .record(z.string(), z.string())
        .describe('The values of the names in the rule, and the ids of the terms and rates used.'),
    }),
  ),
});

function payoutWith<Exact extends z.ZodType>(exact: Exact) {
  return objectOf('payout', {
    id: idOf('po'),
    status: z.enum(payoutStatuses),
    status_reason: z
      .string()
      .nullable()
      .describe('Why the payout failed, was canceled or was returned: see /docs/status-reasons.'),
    status_reason_text: z.string().nullable().describe('The status reason as a sentence.'),
    quote: idOf('qt').nullable(),
    batch: idOf('bat').nullable(),
    retry_of: idOf('po').nullable().describe('The payout that this payout retries.'),
    beneficiary: z.string(),
    beneficiary_version: z
      .int()
      .nullable()
      .describe('The version of the beneficiary that is paid; null until the payout is accepted.'),
    reference: z.string().nullable(),
    metadata: z.record(z.string(), z.string()),
    source_currency: currency.nullable(),
    destination_currency: currency.nullable(),
    fixed_side: fixedSide.nullable(),
    amount: minorUnits.nullable(),
    source_amount: money.nullable().describe('Debited from the balance, fee included.'),
    fee: exact.nullable().describe('Major units of the source currency.'),
    rate: exact.nullable(),
    rate_source: rateSource.nullable(),
    receive_amount: money.nullable().describe('The amount the beneficiary will receive.'),
    received: money.nullable().describe('Received by the beneficiary; null until settlement.'),
    returned_amount: money.nullable().describe('What the bank returned, in destination_currency.'),
    created_at: time,
    estimated_arrival: arrival('The latest arrival, fixed at acceptance; null until then.'),
    settled_at: time
      .nullable()
      .describe('When the bank settled the payout or, if it gives no time, when it reported that.'),
    status_history: z.array(
      z.object({ status: z.enum(payoutStatuses), at: time, reason: z.string().nullable() }),
    ),
  });
}

const ofAccepted = 'Totals of the accepted payouts, one entry per currency pair.';
const corridorTotals = z
  .array(
    z.object({
      source_currency: currency,
      destination_currency: currency,
      count,
      source_amount: money,
      fee: money,
      receive_amount: money,
    }),
  )
  .describe(ofAccepted);

/** Lists do not count payouts, because a page of batches may have a million of them. */
const uncounted = 'Null in lists and in expanded payouts: retrieve the batch instead.';

const batch = objectOf('batch', {
  id: idOf('bat'),
  status: z.enum(batchStatuses),
  mode: z.enum(batchModes),
  outcome: z
    .enum(['accepted', 'refused'])
    .nullable()
    .describe('The result for the whole batch; null until an all-or-nothing batch is decided.'),
  paused: z.boolean().describe('Whether an operator holds back payouts not yet submitted.'),
  counts: z
    .object({
      total: count,
      pending: count,
      processing: count,
      sent: count,
      settled: count,
      failed: count,
      canceled: count,
      returned: count,
    })
    .nullable()
    .describe(`The number of payouts in each status; they add up to total. ${uncounted}`),
  progress: z
    .object({ final: count, percent: z.int().min(0).max(100) })
    .nullable()
    .describe(`The number of payouts that are final. ${uncounted}`),
  totals: corridorTotals.nullable().describe(`${ofAccepted} ${uncounted}`),
  created_at: time,
  canceled_at: time.nullable().describe('When cancellation was requested.'),
  completed_at: time.nullable(),
});

const canceledBatch = batch.extend({
  canceled: z.array(idOf('po')).describe('The payouts that were canceled.'),
  not_canceled: z
    .array(z.object({ id: idOf('po'), status: z.enum(payoutStatuses) }))
    .describe('The payouts that were already submitted to the rail, or final.'),
});

const limit = objectOf('limit', {
  type: z
    .enum(['payout', 'day', 'month', 'new_payee'])
    .describe('Per payout, per day or month (UTC), or per payout to a new beneficiary.'),
  currency,
  destination_currency: currency.nullable().describe('Null for payouts to any currency.'),
  limit: money,
  used: money.nullable().describe('Null unless type is day or month.'),
  left: money.nullable(),
  resets_at: time.nullable(),
  hours: z
    .int()
    .nullable()
    .describe('For new_payee: how long a beneficiary counts as new after it was added or updated.'),
});

const balance = objectOf('balance', {
  currency,
  available: money.describe('The amount available for payouts.'),
  held: money.describe('The amount on hold for payouts in progress.'),
  total: money,
});

const balanceTransaction = objectOf('balance_transaction', {
  id: z.string().regex(/^txn_\d+$/),
  type: z.enum(entryKinds),
  payout: idOf('po').nullable(),
  balance: z.enum(['available', 'held']),
  currency,
  amount: money.describe('Positive for credits, negative for debits.'),
  created_at: time,
});

const corridor = objectOf('corridor', {
  source_currency: currency,
  destination_currency: currency,
  maximum_amount: money.describe('The largest source_amount of a payout.'),
  fee: z.object({ fixed: money, basis_points: count, minimum: money }),
  spread_basis_points: count,
  rail: z.string(),
  scheme: z.string().describe('The clearing system that the destination currency is paid through.'),
  cut_off: z
    .object({ time: z.string().meta({ examples: ['14:00'] }), zone: z.string() })
    .describe('Local time in an IANA zone; from then on, payouts count for the next business day.'),
  business_days: z.array(z.string()).describe('Such as monday; bank holidays are excluded.'),
  estimated_arrival: arrival('The latest arrival of a payout accepted now.'),
});

const webhookEndpoint = objectOf('webhook_endpoint', {
  id: idOf('we'),
  url: z.string(),
  events: z.array(z.string()).describe('The event types sent to the endpoint; * means all.'),
  signature: z
    .enum(['v1', 'v1a'])
    .describe("v1: with the secret; v1a: also with the service's private key."),
  batching: z.boolean().describe('Whether one request may contain up to 100 events.'),
  description: z.string().nullable(),
  api_version: z.string(),
  status: z.enum(['unverified', 'enabled', 'disabled']),
  status_reason: z.string().nullable(),
  failing_since: time
    .nullable()
    .describe(
      'The first failed attempt since the last success; after 5 days the endpoint is disabled.',
    ),
  previous_secret_expires_at: time
    .nullable()
    .describe('Until then, webhooks are signed with the previous secret as well.'),
  created_at: time,
  deleted,
});

const account = objectOf('account', {
  id: idOf('acc'),
  mode: z.enum(['test', 'live']),
  name: z.string(),
  api_version: z.string().describe('The version used for requests that do not specify one.'),
  created_at: time,
});

const refusedParam = z.object({
  code: z.enum(refusalCodes),
  param: z.string().optional().describe('As written in the request: payouts[17][amount].'),
  expected: z.string().optional().describe('The value or format that was expected.'),
  received: z.string().optional().describe('The value received, truncated; never a secret.'),
  line: z.int().min(1).optional().describe('The line of a CSV or NDJSON body.'),
  detail: z.string().describe('What is wrong and what to send instead, for people.'),
});

const batchPreview = objectOf('batch_preview', {
  mode: z.enum(batchModes),
  outcome: z.enum(['accepted', 'refused']),
  counts: z
    .object({ total: count, accepted: count, refused: count, existing: count })
    .describe('existing counts the items whose idempotency keys have already created payouts.'),
  totals: corridorTotals,
  refusals: z.array(refusedParam.extend({ index: count })),
});

/** RFC 9457 problem details. */
const problem = refusedParam.extend({
  type: z
    .string()
    .meta({ description: 'Explains the code.', examples: ['/docs/errors#parameter_invalid'] }),
  title: z.string(),
  status: z.int().min(400).max(599),
  errors: z.array(refusedParam).min(1).max(100).describe('All errors, including the first one.'),
  request_id: idOf('req'),
  payout: idOf('po')
    .optional()
    .describe('The payout that records the error, or that the idempotency key created.'),
  batch: idOf('bat')
    .optional()
    .describe('The batch that the error concerns, or that the idempotency key created.'),
});

const sequence = z.int().min(1).describe('Increases without gaps within the account.');

const listOf = <Item extends z.ZodType>(item: Item) =>
  z.object({ object: z.literal('list'), data: z.array(item), has_more: z.boolean() });

/** Objects that are the same in every version. */
const deliveries = {
  delivery,
  delivery_list: listOf(delivery),
  delivery_with_attempts: deliveryWithAttempts,
  delivery_with_attempts_list: listOf(deliveryWithAttempts),
  redelivery,
  webhook_challenge: webhookChallenge,
  webhook_probe: z.object({
    id: idOf('prb'),
    type: z.enum(probeTypes),
    timestamp: time,
    api_version: z.string(),
    data: z.union([webhookChallenge, webhookEndpoint]),
  }),
  webhook_test: webhookTest,
};

/** Returns every object of a version, by the name that routes use for it. */
function objectsWith<Exact extends z.ZodType>(version: ApiVersion, exact: Exact) {
  const quote = quoteWith(exact);
  const rate = rateWith(exact);
  const payout = payoutWith(exact);
  const expandedPayout = payout.extend({
    quote: z.union([payout.shape.quote, quote]),
    batch: z.union([payout.shape.batch, batch]),
    beneficiary: z.union([payout.shape.beneficiary, beneficiary]),
  });
  const data = z
    .union([payout, batch, webhookEndpoint])
    .describe('The object at the time of the event.');
  const event = objectOf('event', {
    id: idOf('evt'),
    type: z.enum(eventTypes),
    timestamp: time,
    sequence,
    created_at: time,
    data,
  });
  const message = event
    .omit({ object: true, created_at: true })
    .extend({ api_version: z.literal(version) });
  return {
    account,
    balance,
    balance_list: listOf(balance),
    limit,
    limit_list: listOf(limit),
    balance_transaction: balanceTransaction,
    balance_transaction_list: listOf(balanceTransaction),
    batch,
    batch_list: listOf(batch),
    batch_preview: batchPreview,
    beneficiary,
    beneficiary_list: listOf(beneficiary),
    beneficiary_requirements: requirements,
    calculation,
    canceled_batch: canceledBatch,
    corridor,
    corridor_list: listOf(corridor),
    ...deliveries,
    event,
    event_list: listOf(event),
    expanded_payout: expandedPayout,
    past_rate: pastRate,
    past_rate_list: listOf(pastRate),
    payout,
    payout_list: listOf(expandedPayout),
    problem,
    quote,
    rate,
    rate_list: listOf(rate),
    webhook_endpoint: webhookEndpoint,
    webhook_endpoint_list: listOf(webhookEndpoint),
    webhook_endpoint_with_secret: webhookEndpoint.extend({
      secret: z
        .string()
        .nullable()
        .describe('Signs webhooks. Shown only here; a retry after an hour returns null.'),
    }),
    webhook_message: message,
    webhook_batch: message.omit({ sequence: true }).extend({
      id: idOf('evb').describe('Identical for the same events.'),
      type: z.literal(eventBatch),
      data: z.array(message).min(1).max(100).describe('Ordered by sequence.'),
    }),
  };
}

export type ObjectName = keyof ReturnType<typeof objectsWith>;

const newest = objectsWith('2026-11-15', decimal.meta({ examples: ['0.8612'] }));

/** The objects of each version, as the down-converters of versions/ produce them from the newest. */
export const objectsOf: Readonly<Record<ApiVersion, Readonly<Record<ObjectName, z.ZodObject>>>> = {
  '2026-11-15': newest,
  '2026-06-01': objectsWith('2026-06-01', z.number().meta({ examples: [0.8612] })),
};

/** An object of the newest version, as the functions of objects.ts return it. */
export type ContractObject<Name extends ObjectName> = Immutable<z.infer<(typeof newest)[Name]>>;

type Immutable<T> = T extends readonly (infer Item)[]
  ? readonly Immutable<Item>[]
  : T extends object
    ? { readonly [Name in keyof T]: Immutable<T[Name]> }
    : T;
