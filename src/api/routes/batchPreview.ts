import { batchPreviewObject, type PreviewedItem } from '../../contract/batchObjects.js';
import type { BatchItemParams, BatchParams } from '../../contract/params.js';
import { findReceivers } from '../../db/beneficiaries.js';
import { findKeys } from '../../db/idempotency.js';
import { findFunds } from '../../db/ledger.js';
import { findQuotes, type QuoteRow } from '../../db/quotes.js';
import { currentRates, midOf } from '../../db/rates.js';
import { currentTerms } from '../../db/terms.js';
import {
  fundInOrder,
  type LockedQuote,
  type PricedPayout,
  type PriceFacts,
  priceOf,
} from '../../domain/acceptance.js';
import { corridorOf, railNameOf, refuseUnroutable } from '../../domain/corridor.js';
import { parseRate } from '../../domain/fx.js';
import { isRefusal, type Refusal } from '../../domain/refusal.js';
import { paramName } from '../decoded.js';
import type { ApiDeps, ApiRequest } from '../route.js';
import { createPace } from '../slices.js';
import { type KeyedItem, keyedItems, readEarlier } from './batchItems.js';
import { orderOf } from './payouts.js';

/**
 * Computes the outcome that a batch would have now, by the same decision and in the same order as a real one.
 * Nothing is stored, so nothing is promised either.
 */
export async function previewBatch(deps: ApiDeps, request: ApiRequest, params: BatchParams) {
  const items = await keyedItems(deps, request, params.payouts);
  const { factsOf, funds, keys } = await readFacts(deps, request, items);
  const earlierOf = await readEarlier(deps.database, params.mode, keys);
  const { account } = request;
  const isRouted = railNameOf(account.mode) !== undefined;
  const priced: PricedPayout[] = [];
  const pace = createPace();
  for (const item of items) {
    await pace();
    const before = earlierOf(item);
    // Its key has already created a payout, so there is nothing to decide.
    if (before !== undefined && 'payoutId' in before) continue;
    const order = { ...orderOf(item.params), batchId: null, ageMs: 0 };
    const facts = factsOf(item.params);
    const price = isRouted ? priceOf(order, facts) : refuseUnroutable(account.mode);
    priced.push({ id: item.payoutId, request: order, facts, priced: before?.refusal ?? price });
  }
  const results = fundInOrder(priced, funds);
  const resultOf = new Map(priced.map(({ id }, index) => [id, results[index]]));
  const previewed: PreviewedItem[] = [];
  for (const { index, payoutId } of items) {
    await pace();
    const decided = resultOf.get(payoutId);
    if (!resultOf.has(payoutId)) previewed.push({ kind: 'existing' });
    else if (decided === undefined) throw new Error(`Item ${index} was not decided.`);
    else if (!isRefusal(decided)) previewed.push({ kind: 'accepted', acceptance: decided });
    else previewed.push({ kind: 'refused', index, refusal: inBatch(decided, index) });
  }
  return batchPreviewObject(params.mode, previewed);
}

/** Reads the same facts as the decision, without its locks. */
async function readFacts(deps: ApiDeps, request: ApiRequest, items: readonly KeyedItem[]) {
  const { database } = deps;
  const accountId = request.account.id;
  const named = <T>(pick: (item: KeyedItem) => T | undefined): readonly T[] => [
    ...new Set(items.flatMap((item) => pick(item) ?? [])),
  ];
  const quoteIds = named(({ params }) => params.quote);
  const beneficiaryIds = named(({ params }) => params.beneficiary);
  const keysSent = named(({ key }) => key?.key);
  const [quotes, beneficiaries, funds, rates, { terms, openings }, keys] = await Promise.all([
    findQuotes(database, accountId, quoteIds),
    findReceivers(database, accountId, beneficiaryIds),
    findFunds(database, accountId),
    currentRates(database, deps.rateMaximumAgeMs[request.account.mode]),
    currentTerms(database, accountId),
    findKeys(database, accountId, keysSent),
  ]);
  const quoteOf = new Map(quotes.map((quote) => [quote.id, quote]));
  const usable = beneficiaries.filter(({ deletedAt }) => deletedAt === null);
  const beneficiaryOf = new Map(usable.map((row) => [row.id, row]));
  return {
    funds,
    keys,
    factsOf: (params: BatchItemParams): PriceFacts => ({
      quote: quoteFacts(quoteOf.get(params.quote ?? '')),
      beneficiary: beneficiaryOf.get(params.beneficiary),
      openings,
      pairOf: (source, destination) => ({
        mid: midOf(rates, source, destination),
        corridor: corridorOf(terms, source, destination),
      }),
    }),
  };
}

function quoteFacts(quote: QuoteRow | undefined): LockedQuote | undefined {
  if (quote === undefined) return undefined;
  const { rate, mid, expired } = quote;
  return { ...quote, rate: parseRate(rate), mid: parseRate(mid), inTime: !expired };
}

/** Converts a refusal to the notation of the batch. */
function inBatch(refusal: Refusal, index: number): Refusal {
  const { param } = refusal;
  // The refusal of an item's key already has its full name.
  if (param === undefined || param.startsWith('payouts[')) return refusal;
  return { ...refusal, param: paramName(['payouts', index, param]) };
}
