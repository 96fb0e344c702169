import type { BeneficiaryDetails } from '../domain/beneficiary.js';
import { formatMinor } from '../domain/money.js';
import type { PayoutStatus } from '../domain/payout.js';
import type { FixedSide } from '../domain/quote.js';
import type { ContractObject } from './schemas.js';

/**
 * The objects integrators see, in the newest version. Each function takes what its object
 * needs, so that this folder knows nothing of the tables; a row satisfies it.
 */

export type QuoteSource = {
  readonly id: string;
  readonly sourceCurrency: string;
  readonly destinationCurrency: string;
  readonly fixedSide: FixedSide;
  readonly amount: bigint;
  readonly sourceMinor: bigint;
  readonly feeMinor: bigint;
  readonly receiveMinor: bigint;
  readonly rate: string;
  readonly mid: string;
  readonly rateProvider: string;
  readonly rateAsOf: Date;
  readonly createdAt: Date;
  readonly expiresAt: Date;
  readonly usedBy: string | null;
  readonly expired: boolean;
};

export function quoteObject(quote: QuoteSource): ContractObject<'quote'> {
  return {
    object: 'quote',
    id: quote.id,
    status: quoteStatus(quote),
    source_currency: quote.sourceCurrency,
    destination_currency: quote.destinationCurrency,
    fixed_side: quote.fixedSide,
    amount: wholeNumber(quote.amount),
    source_amount: formatMinor(quote.sourceMinor, quote.sourceCurrency),
    fee: formatMinor(quote.feeMinor, quote.sourceCurrency),
    rate: quote.rate,
    mid_rate: quote.mid,
    rate_source: { provider: quote.rateProvider, as_of: quote.rateAsOf.toISOString() },
    receive_amount: formatMinor(quote.receiveMinor, quote.destinationCurrency),
    payout: quote.usedBy,
    created_at: quote.createdAt.toISOString(),
    expires_at: quote.expiresAt.toISOString(),
  };
}

function quoteStatus(quote: QuoteSource): 'open' | 'used' | 'expired' {
  if (quote.usedBy !== null) return 'used';
  return quote.expired ? 'expired' : 'open';
}

export type PayoutSource = {
  readonly id: string;
  readonly status: PayoutStatus;
  readonly statusReason: string | null;
  readonly statusHistory: readonly {
    readonly status: PayoutStatus;
    readonly at: string;
    readonly reason: string | null;
  }[];
  readonly quoteId: string | null;
  readonly beneficiaryId: string;
  readonly sourceCurrency: string | null;
  readonly destinationCurrency: string | null;
  readonly fixedSide: FixedSide | null;
  readonly amount: bigint | null;
  readonly reference: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly requestedAt: Date;
  readonly sourceMinor: bigint | null;
  readonly feeMinor: bigint | null;
  readonly receiveMinor: bigint | null;
  readonly rate: string | null;
  readonly settledAt: Date | null;
  readonly returnedMinor: bigint | null;
  readonly batchId: string | null;
};

/** `received` and `settled_at` are null until known, the amounts until the payout is accepted. */
export function payoutObject(payout: PayoutSource): ContractObject<'payout'> {
  return {
    object: 'payout',
    id: payout.id,
    status: payout.status,
    status_reason: payout.statusReason,
    quote: payout.quoteId,
    batch: payout.batchId,
    beneficiary: payout.beneficiaryId,
    reference: payout.reference,
    metadata: payout.metadata,
    source_currency: payout.sourceCurrency,
    destination_currency: payout.destinationCurrency,
    fixed_side: payout.fixedSide,
    amount: payout.amount === null ? null : wholeNumber(payout.amount),
    source_amount: amountOf(payout.sourceMinor, payout.sourceCurrency),
    fee: amountOf(payout.feeMinor, payout.sourceCurrency),
    rate: payout.rate,
    receive_amount: amountOf(payout.receiveMinor, payout.destinationCurrency),
    received:
      payout.settledAt === null ? null : amountOf(payout.receiveMinor, payout.destinationCurrency),
    returned_amount: amountOf(payout.returnedMinor, payout.destinationCurrency),
    created_at: payout.requestedAt.toISOString(),
    settled_at: payout.settledAt?.toISOString() ?? null,
    status_history: payout.statusHistory,
  };
}

function amountOf(minor: bigint | null, currency: string | null): string | null {
  return minor === null || currency === null ? null : formatMinor(minor, currency);
}

/** Echoes an integer that was sent as one; at most 10^14, so a JSON number holds it exactly. */
function wholeNumber(amount: bigint): number {
  return Number(amount);
}

export type BatchSource = {
  readonly id: string;
  readonly status: ContractObject<'batch'>['status'];
  readonly total: number;
  readonly createdAt: Date;
  readonly completedAt: Date | null;
};

export type BatchCountSource = {
  readonly status: string;
  readonly sourceCurrency: string | null;
  readonly destinationCurrency: string | null;
  readonly count: number;
  readonly sourceMinor: bigint;
  readonly feeMinor: bigint;
  readonly receiveMinor: bigint;
};

/** The counters always add up to `total`: they are counted from the items themselves. */
export function batchObject(
  batch: BatchSource,
  items: readonly BatchCountSource[],
): ContractObject<'batch'> {
  const countOf = (status: PayoutStatus) =>
    items.filter((item) => item.status === status).reduce((sum, item) => sum + item.count, 0);
  return {
    object: 'batch',
    id: batch.id,
    status: batch.status,
    counts: {
      total: batch.total,
      pending: countOf('pending'),
      processing: countOf('processing'),
      sent: countOf('sent'),
      settled: countOf('settled'),
      failed: countOf('failed'),
      canceled: countOf('canceled'),
      returned: countOf('returned'),
    },
    totals: totalsOf(items),
    created_at: batch.createdAt.toISOString(),
    completed_at: batch.completedAt?.toISOString() ?? null,
  };
}

/** What the accepted items come to, one entry a corridor. */
function totalsOf(items: readonly BatchCountSource[]) {
  const totals = new Map<
    string,
    { items: BatchCountSource[]; source: string; destination: string }
  >();
  for (const item of items) {
    const { sourceCurrency: source, destinationCurrency: destination } = item;
    if (source === null || destination === null || item.sourceMinor === 0n) continue;
    const corridor = totals.get(`${source} ${destination}`) ?? { items: [], source, destination };
    corridor.items.push(item);
    totals.set(`${source} ${destination}`, corridor);
  }
  return [...totals.values()].map(({ items: accepted, source, destination }) => ({
    source_currency: source,
    destination_currency: destination,
    count: accepted.reduce((sum, item) => sum + item.count, 0),
    source_amount: formatMinor(sumOf(accepted, 'sourceMinor'), source),
    fee: formatMinor(sumOf(accepted, 'feeMinor'), source),
    receive_amount: formatMinor(sumOf(accepted, 'receiveMinor'), destination),
  }));
}

function sumOf(
  items: readonly BatchCountSource[],
  name: 'sourceMinor' | 'feeMinor' | 'receiveMinor',
): bigint {
  return items.reduce((sum, item) => sum + item[name], 0n);
}

export type BeneficiarySource = {
  readonly id: string;
  readonly details: BeneficiaryDetails;
  readonly createdAt: Date;
  readonly deletedAt: Date | null;
};

/** Account numbers are never read back: `masked` is the domain's masking of the details. */
export function beneficiaryObject(
  beneficiary: BeneficiarySource,
  masked: (details: BeneficiaryDetails) => BeneficiaryDetails,
): ContractObject<'beneficiary'> {
  return {
    object: 'beneficiary',
    id: beneficiary.id,
    ...masked(beneficiary.details),
    created_at: beneficiary.createdAt.toISOString(),
    ...(beneficiary.deletedAt === null ? {} : { deleted: true }),
  };
}

export function balanceObject(balance: {
  readonly currency: string;
  readonly availableMinor: bigint;
  readonly heldMinor: bigint;
}): ContractObject<'balance'> {
  const { currency, availableMinor, heldMinor } = balance;
  return {
    object: 'balance',
    currency,
    available: formatMinor(availableMinor, currency),
    held: formatMinor(heldMinor, currency),
    total: formatMinor(availableMinor + heldMinor, currency),
  };
}

export type WebhookEndpointSource = {
  readonly id: string;
  readonly url: string;
  readonly events: readonly string[];
  readonly apiVersion: string;
  readonly status: ContractObject<'webhook_endpoint'>['status'];
  readonly statusReason: string | null;
  readonly createdAt: Date;
  readonly deletedAt: Date | null;
};

export function webhookEndpointObject(
  endpoint: WebhookEndpointSource,
): ContractObject<'webhook_endpoint'> {
  return {
    object: 'webhook_endpoint',
    id: endpoint.id,
    url: endpoint.url,
    events: endpoint.events,
    api_version: endpoint.apiVersion,
    status: endpoint.status,
    status_reason: endpoint.statusReason,
    created_at: endpoint.createdAt.toISOString(),
    ...(endpoint.deletedAt === null ? {} : { deleted: true }),
  };
}

/** An event as it is listed and as it is sent; `data` is the object as it was then. */
export function eventObject(event: {
  readonly id: string;
  readonly type: ContractObject<'event'>['type'];
  readonly sequence: bigint;
  readonly data: Readonly<Record<string, unknown>>;
  readonly createdAt: Date;
}): Omit<ContractObject<'event'>, 'data'> & { readonly data: Readonly<Record<string, unknown>> } {
  return {
    object: 'event',
    id: event.id,
    type: event.type,
    timestamp: event.createdAt.toISOString(),
    sequence: Number(event.sequence),
    created_at: event.createdAt.toISOString(),
    data: event.data,
  };
}

export function accountObject(account: {
  readonly id: string;
  readonly mode: ContractObject<'account'>['mode'];
  readonly name: string;
  readonly apiVersion: string;
  readonly createdAt: Date;
}): ContractObject<'account'> {
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
