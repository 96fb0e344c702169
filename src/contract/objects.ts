import type { Account } from '../db/accounts.js';
import type { BalanceTransactionRow } from '../db/balanceTransactions.js';
import type { BeneficiaryRow } from '../db/beneficiaries.js';
import type { AttemptRow, DeliveryRow } from '../db/deliveryLog.js';
import type { EventRow } from '../db/events.js';
import type { BalanceRow } from '../db/ledger.js';
import type { PayoutRow } from '../db/payouts.js';
import type { QuoteRow } from '../db/quotes.js';
import type { PastRate, RateOrigin } from '../db/rates.js';
import type { Redelivery } from '../db/redelivery.js';
import type { WebhookEndpointRow } from '../db/webhookEndpoints.js';
import { heldRateMaximumAgeMs } from '../domain/acceptance.js';
import { estimatedArrival, schemeOf } from '../domain/arrival.js';
import { type BeneficiaryDetails, maskedDetails, nameOnStatement } from '../domain/beneficiary.js';
import type { Corridor } from '../domain/corridor.js';
import type { FieldRule } from '../domain/fieldRule.js';
import { crossMid, formatRate, quotedRate, type Rate } from '../domain/fx.js';
import { formatMinor, max } from '../domain/money.js';
import { statusHistory } from '../domain/payout.js';
import type { LimitUse, PayeeDelay } from '../domain/sendingLimits.js';
import { statusReasonText } from '../domain/statusReason.js';
import type { ContractObject } from './schemas.js';

/** Renders rows as the objects that integrators see, in the newest version. */

export function quoteObject(quote: QuoteRow): ContractObject<'quote'> {
  return {
    object: 'quote',
    id: quote.id,
    status: quoteStatus(quote),
    source_currency: quote.sourceCurrency,
    destination_currency: quote.destinationCurrency,
    fixed_side: quote.fixedSide,
    // At most 10^14, so a JSON number holds it exactly.
    amount: Number(quote.amount),
    source_amount: formatMinor(quote.sourceMinor, quote.sourceCurrency),
    fee: formatMinor(quote.feeMinor, quote.sourceCurrency),
    rate: quote.rate,
    mid_rate: quote.mid,
    rate_source: { provider: quote.rateProvider, as_of: quote.rateAsOf.toISOString() },
    receive_amount: formatMinor(quote.receiveMinor, quote.destinationCurrency),
    payout: quote.usedBy,
    created_at: quote.createdAt.toISOString(),
    expires_at: quote.expiresAt.toISOString(),
    // For the last moment at which a payout of the quote can be accepted: the payout arrives no later.
    estimated_arrival: arrivalOf(quote, new Date(quote.expiresAt.getTime() + heldRateMaximumAgeMs)),
  };
}

type Pair = Pick<PayoutRow, 'sourceCurrency' | 'destinationCurrency'>;

/** Estimates an arrival by the calendars in force at `at`, so it is the same whenever it is rendered. */
function arrivalOf({ sourceCurrency: source, destinationCurrency: to }: Pair, at: Date | null) {
  if (source === null || to === null || at === null) return null;
  return estimatedArrival(source, to, at)?.toISOString() ?? null;
}

function quoteStatus(quote: QuoteRow): 'open' | 'used' | 'expired' {
  if (quote.usedBy !== null) return 'used';
  return quote.expired ? 'expired' : 'open';
}

/** Renders a payout. `received` and `settled_at` are null until known, the amounts until it is accepted. */
export function payoutObject(payout: PayoutRow): ContractObject<'payout'> {
  return {
    object: 'payout',
    id: payout.id,
    status: payout.status,
    status_reason: payout.statusReason,
    status_reason_text:
      payout.statusReason && statusReasonText(payout.statusReason, payout.refusal),
    quote: payout.quoteId,
    batch: payout.batchId,
    retry_of: payout.retryOf,
    beneficiary: payout.beneficiaryId,
    beneficiary_version: payout.beneficiaryVersion,
    reference: payout.reference,
    metadata: payout.metadata,
    source_currency: payout.sourceCurrency,
    destination_currency: payout.destinationCurrency,
    fixed_side: payout.fixedSide,
    amount: payout.amount === null ? null : Number(payout.amount),
    source_amount: amountOf(payout.sourceMinor, payout.sourceCurrency),
    fee: amountOf(payout.feeMinor, payout.sourceCurrency),
    rate: payout.rate,
    rate_source:
      payout.rateProvider === null || payout.rateAsOf === null
        ? null
        : { provider: payout.rateProvider, as_of: payout.rateAsOf.toISOString() },
    receive_amount: amountOf(payout.receiveMinor, payout.destinationCurrency),
    received:
      payout.settledAt === null ? null : amountOf(payout.receiveMinor, payout.destinationCurrency),
    returned_amount: amountOf(payout.returnedMinor, payout.destinationCurrency),
    created_at: payout.requestedAt.toISOString(),
    estimated_arrival: arrivalOf(payout, payout.processingSince),
    settled_at: payout.settledAt?.toISOString() ?? null,
    status_history: statusHistory(payout),
  };
}

function amountOf(minor: bigint | null, currency: string | null): string | null {
  return minor === null || currency === null ? null : formatMinor(minor, currency);
}

/** Renders a beneficiary. Account numbers are masked: they are never returned in full. */
export function beneficiaryObject(
  beneficiary: BeneficiaryRow,
  details: BeneficiaryDetails,
): ContractObject<'beneficiary'> {
  return {
    object: 'beneficiary',
    id: beneficiary.id,
    ...maskedDetails(details),
    name_on_statement: nameOnStatement(details),
    same_account_as: beneficiary.sameAccountAs,
    version: beneficiary.version,
    created_at: beneficiary.createdAt.toISOString(),
    updated_at: beneficiary.updatedAt?.toISOString() ?? null,
    ...(beneficiary.deletedAt === null ? {} : { deleted: true }),
  };
}

export function balanceObject(balance: BalanceRow): ContractObject<'balance'> {
  const { currency, availableMinor, heldMinor } = balance;
  return {
    object: 'balance',
    currency,
    available: formatMinor(availableMinor, currency),
    held: formatMinor(heldMinor, currency),
    total: formatMinor(availableMinor + heldMinor, currency),
  };
}

/** Renders one movement of a balance: positive for money that came in, negative for money that went out. */
export function balanceTransactionObject(posting: BalanceTransactionRow) {
  return {
    object: 'balance_transaction',
    id: `txn_${posting.id}`,
    type: posting.type,
    payout: posting.payoutId,
    balance: posting.balance,
    currency: posting.currency,
    amount: formatMinor(posting.amountMinor, posting.currency),
    created_at: posting.createdAt.toISOString(),
  };
}

/** Renders a limit and its use. A limit of a single payout is not used up. */
export function limitObject(
  currency: string,
  { period, destination, limitMinor, usedMinor, resetsAt }: LimitUse,
): ContractObject<'limit'> {
  const resets = resetsAt !== null;
  return {
    object: 'limit',
    type: period,
    currency,
    destination_currency: destination,
    limit: formatMinor(limitMinor, currency),
    used: resets ? formatMinor(usedMinor, currency) : null,
    left: resets ? formatMinor(max(limitMinor - usedMinor, 0n), currency) : null,
    resets_at: resetsAt?.toISOString() ?? null,
    hours: null,
  };
}

/** Renders the amount above which a payout requires its beneficiary's details to be `hours` old. */
export function payeeDelayObject({ currency, aboveMinor, hours }: PayeeDelay) {
  const limit = formatMinor(aboveMinor, currency);
  const none = { destination_currency: null, used: null, left: null, resets_at: null };
  return { object: 'limit', type: 'new_payee', currency, limit, ...none, hours } as const;
}

/** Renders what is on its way to an endpoint after a redelivery. */
export function redeliveryObject(row: Redelivery): ContractObject<'redelivery'> {
  const { endpointId, pending, hasMore } = row;
  return { object: 'redelivery', webhook_endpoint: endpointId, pending, has_more: hasMore };
}

/** Renders the rate that a corridor would be priced at now. */
export function rateObject(
  { source, destination, spreadBasisPoints }: Corridor,
  mid: Rate,
  { rateProvider, rateAsOf }: RateOrigin,
): ContractObject<'rate'> {
  return {
    object: 'rate',
    source_currency: source,
    destination_currency: destination,
    rate: formatRate(quotedRate(mid, spreadBasisPoints)),
    mid_rate: formatRate(mid),
    spread_basis_points: spreadBasisPoints,
    rate_source: { provider: rateProvider, as_of: rateAsOf.toISOString() },
  };
}

/** Renders a past mid rate, with the two published rates that it is computed from. */
export function pastRateObject(row: PastRate): ContractObject<'past_rate'> {
  const half = (id: bigint, perEuro: string, asOf: Date) => ({
    ...{ id: `rate_${id}`, per_euro: perEuro, as_of: asOf.toISOString() },
  });
  return {
    object: 'past_rate',
    id: `rate_${row.id}`,
    source_currency: row.sourceCurrency,
    destination_currency: row.destinationCurrency,
    mid_rate: formatRate(crossMid(row.sourcePerEuro, row.destinationPerEuro)),
    provider: row.provider,
    as_of: row.asOf.toISOString(),
    received_at: row.arrivedAt.toISOString(),
    source_rate: half(row.sourceId, row.sourcePerEuro, row.sourceAsOf),
    destination_rate: half(row.destinationId, row.destinationPerEuro, row.destinationAsOf),
  };
}

/**
 * Renders a corridor: its terms, with amounts in units of the source currency and shares in basis points, and
 * how a payout that is accepted at this moment would be paid.
 */
export function corridorObject(corridor: Corridor, at: Date): ContractObject<'corridor'> {
  const { source, destination, fee } = corridor;
  const scheme = schemeOf(destination, at);
  return {
    object: 'corridor',
    source_currency: source,
    destination_currency: destination,
    maximum_amount: formatMinor(corridor.maximumMinor, source),
    fee: {
      fixed: formatMinor(fee.fixedMinor, source),
      basis_points: fee.basisPoints,
      minimum: formatMinor(fee.minimumMinor, source),
    },
    spread_basis_points: corridor.spreadBasisPoints,
    rail: corridor.rail,
    scheme: scheme.scheme,
    cut_off: { time: scheme.cut_off, zone: scheme.zone },
    business_days: scheme.business_days,
    estimated_arrival: estimatedArrival(source, destination, at)?.toISOString() ?? null,
  };
}

/**
 * Renders what a country's accounts require, the usual kind first.
 *
 * @param addressed the rules of the same kinds when an address is sent
 */
export function requirementsObject(
  country: string,
  currency: string | null,
  accounts: readonly (readonly FieldRule[])[],
  addressed: readonly (readonly FieldRule[])[],
): ContractObject<'beneficiary_requirements'> {
  const [usual = { fields: [], json_schema: {} }, ...alternatives] = accounts.map(
    (rules, kind) => ({
      fields: rules.map(fieldObject),
      json_schema: bodySchema(rules, addressed[kind] ?? []),
    }),
  );
  return { object: 'beneficiary_requirements', country, currency, ...usual, alternatives };
}

const isAddressPart = ({ field }: FieldRule) => field.startsWith('address[');

/**
 * Returns the JSON Schema of the body for one kind of account. An address that is sent has required parts,
 * even if no address is required.
 */
function bodySchema(rules: readonly FieldRule[], addressed: readonly FieldRule[]) {
  const plain = objectSchema(rules.filter((rule) => !isAddressPart(rule)));
  const address = objectSchema(addressed.filter(isAddressPart));
  const isRequired = rules.some((rule) => isAddressPart(rule) && rule.required);
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    ...plain,
    properties: { ...plain.properties, address },
    required: [...plain.required, ...(isRequired ? ['address'] : [])],
    examples: [{ ...plain.examples[0], ...(isRequired ? { address: address.examples[0] } : {}) }],
  };
}

function objectSchema(rules: readonly FieldRule[]) {
  // `address[town]` is named `town` in the object `address`.
  const named = rules.map((rule) => ({ ...rule, name: rule.field.replace(/^.*\[(.*)\]$/, '$1') }));
  const required = named.filter((rule) => rule.required);
  return {
    type: 'object',
    properties: Object.fromEntries(
      named.map(({ name, expected: description, pattern, example, default: usual }) => [
        name,
        { type: 'string', description, pattern, examples: [example], default: usual },
      ]),
    ),
    required: required.map(({ name }) => name),
    additionalProperties: false,
    examples: [Object.fromEntries(required.map(({ name, example }) => [name, example]))],
  };
}

function fieldObject({ field, required, expected, pattern, example }: FieldRule) {
  return {
    name: field,
    type: 'string',
    required,
    description: expected,
    pattern,
    example,
  } as const;
}

export function webhookEndpointObject(
  endpoint: WebhookEndpointRow,
): ContractObject<'webhook_endpoint'> {
  return {
    object: 'webhook_endpoint',
    id: endpoint.id,
    url: endpoint.url,
    events: endpoint.events,
    signature: endpoint.signature,
    batching: endpoint.batching,
    description: endpoint.description,
    api_version: endpoint.apiVersion,
    status: endpoint.status,
    status_reason: endpoint.statusReason,
    failing_since: endpoint.failingSince?.toISOString() ?? null,
    previous_secret_expires_at: endpoint.previousSecretUntil?.toISOString() ?? null,
    created_at: endpoint.createdAt.toISOString(),
    ...(endpoint.deletedAt === null ? {} : { deleted: true }),
  };
}

/** Renders an event as it is listed and as it is sent. `data` is the object at the time of the event. */
export function eventObject(
  event: EventRow,
): Omit<ContractObject<'event'>, 'data'> & { readonly data: Readonly<Record<string, unknown>> } {
  return {
    object: 'event',
    id: event.id,
    type: event.type,
    timestamp: event.createdAt.toISOString(),
    sequence: Number(event.sequence),
    created_at: event.createdAt.toISOString(),
    data: dataOf(event),
  };
}

/** Returns the object of an event as it was at that time. */
function dataOf(event: EventRow): Readonly<Record<string, unknown>> {
  if (event.type === 'batch.completed' || event.type === 'webhook_endpoint.disabled') {
    return event.facts;
  }
  const { status, statusReason, settledAt, returnedMinor } = event.facts;
  return payoutObject({
    ...event,
    id: event.subjectId,
    status,
    statusReason,
    settledAt: settledAt === null ? null : new Date(settledAt),
    returnedMinor: returnedMinor === null ? null : BigInt(returnedMinor),
  });
}

/** Renders the delivery of an event to one endpoint: the number of attempts, and how the last one ended. */
export function deliveryObject(delivery: DeliveryRow) {
  return {
    object: 'delivery',
    event: delivery.eventId,
    webhook_endpoint: delivery.endpointId,
    status: delivery.status,
    attempt_count: delivery.attempts,
    last_attempt_at: delivery.lastAttemptAt?.toISOString() ?? null,
    last_status: delivery.lastStatus,
    last_error: delivery.lastError,
    last_latency_ms: delivery.lastLatencyMs,
    next_attempt_at: delivery.status === 'pending' ? delivery.nextAttemptAt.toISOString() : null,
  } as const;
}

/** Renders a delivery with the result of each attempt, newest first. */
export function deliveryWithAttemptsObject(
  delivery: DeliveryRow,
  attempts: readonly AttemptRow[],
): ContractObject<'delivery_with_attempts'> {
  const own = attempts.filter(({ endpointId }) => endpointId === delivery.endpointId);
  return { ...deliveryObject(delivery), attempts: own.map(attemptObject) };
}

function attemptObject({ at, latencyMs, httpStatus, error, answer, nextAttemptAt }: AttemptRow) {
  return {
    at: at.toISOString(),
    http_status: httpStatus,
    latency_ms: latencyMs,
    error,
    response: answer,
    next_attempt_at: nextAttemptAt?.toISOString() ?? null,
  };
}

export function accountObject(account: Account): ContractObject<'account'> {
  return {
    object: 'account',
    id: account.id,
    mode: account.mode,
    name: account.name,
    api_version: account.apiVersion,
    created_at: account.createdAt.toISOString(),
  };
}

export function listObject<T extends object>(
  data: readonly T[],
  hasMore = false,
): Omit<ContractObject<'balance_list'>, 'data'> & { readonly data: readonly T[] } {
  return { object: 'list', data, has_more: hasMore };
}
