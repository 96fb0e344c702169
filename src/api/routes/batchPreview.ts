import { setImmediate } from 'node:timers/promises';
import { batchPreviewObject, type PreviewedItem } from '../../contract/batchObjects.js';
import type { BatchItemParams, BatchParams } from '../../contract/params.js';
import { findBeneficiaries } from '../../db/beneficiaries.js';
import { findKeys } from '../../db/idempotency.js';
import { listBalances } from '../../db/ledger.js';
import { findQuotes, type QuoteRow } from '../../db/quotes.js';
import { currentRates, midOf } from '../../db/rates.js';
import { decide, type Facts, type LockedQuote, refuseUnroutable } from '../../domain/acceptance.js';
import { parseRate } from '../../domain/fx.js';
import { isRefusal, type Refusal } from '../../domain/refusal.js';
import { paramName } from '../decoded.js';
import type { Answer, ApiDeps, ApiRequest } from '../route.js';
import { earlierOf, type KeyedItem, keyedItems } from './batchItems.js';
import { sliceItems } from './batchShape.js';

/**
 * What a batch would come to now, item by item in its order, each taken if it fits what the
 * ones before it leave. Nothing is stored, so nothing is promised either.
 */
export async function previewBatch(
  deps: ApiDeps,
  request: ApiRequest,
  { payouts, mode }: BatchParams,
): Promise<Answer> {
  const items = await keyedItems(deps, request, payouts);
  const { factsOf, spend, earlier } = await readFacts(deps, request, items);
  const previewed: PreviewedItem[] = [];
  for (const item of items) {
    if (item.index % sliceItems === sliceItems - 1) await setImmediate();
    const before = earlierOf(item, earlier);
    if (before !== undefined && 'payoutId' in before) {
      previewed.push({ kind: 'existing' });
      continue;
    }
    const decided = before?.refusal ?? judge(request, item.params, factsOf(item.params));
    if (isRefusal(decided)) {
      previewed.push({ kind: 'refused', index: item.index, refusal: inBatch(decided, item.index) });
      continue;
    }
    spend(decided.sourceCurrency, decided.sourceMinor);
    previewed.push({ kind: 'accepted', acceptance: decided });
  }
  return { status: 200, body: batchPreviewObject(mode, previewed) };
}

function judge({ account }: ApiRequest, params: BatchItemParams, facts: Facts) {
  if (account.mode !== 'test') return refuseUnroutable(account.mode);
  return decide(
    {
      quoteId: params.quote ?? null,
      beneficiaryId: params.beneficiary,
      sourceCurrency: params.source_currency ?? null,
      destinationCurrency: params.destination_currency ?? null,
      fixedSide: params.quote === undefined ? (params.fixed_side ?? 'source') : null,
      amount: params.amount ?? null,
      batchId: null,
      ageMs: 0,
    },
    facts,
  );
}

/** The same facts as the decision reads, without their locks. */
async function readFacts(deps: ApiDeps, request: ApiRequest, items: readonly KeyedItem[]) {
  const { database } = deps;
  const accountId = request.account.id;
  const named = <T>(pick: (item: KeyedItem) => T | undefined): readonly T[] => [
    ...new Set(items.flatMap((item) => pick(item) ?? [])),
  ];
  const [quotes, beneficiaries, balances, rates, keys] = await Promise.all([
    findQuotes(
      database,
      accountId,
      named(({ params }) => params.quote),
    ),
    findBeneficiaries(
      database,
      accountId,
      named(({ params }) => params.beneficiary),
    ),
    listBalances(database, accountId),
    currentRates(database, deps.rateMaximumAgeMs),
    findKeys(
      database,
      accountId,
      named(({ key }) => key?.key),
    ),
  ]);
  const quoteOf = new Map(quotes.map((quote) => [quote.id, quote]));
  const usable = beneficiaries.filter(({ deletedAt }) => deletedAt === null);
  const beneficiaryOf = new Map(usable.map((row) => [row.id, { currency: row.details.currency }]));
  const funds = new Map(balances.map((row) => [row.currency, row.availableMinor]));
  return {
    earlier: new Map(keys.map((binding) => [binding.key, binding])),
    factsOf: (params: BatchItemParams): Facts => ({
      quote: heldQuote(quoteOf.get(params.quote ?? '')),
      beneficiary: beneficiaryOf.get(params.beneficiary),
      midOf: (source, destination) => midOf(rates, source, destination),
      availableOf: (currency) => funds.get(currency) ?? 0n,
    }),
    spend: (currency: string, minor: bigint): void => {
      funds.set(currency, (funds.get(currency) ?? 0n) - minor);
    },
  };
}

function heldQuote(quote: QuoteRow | undefined): LockedQuote | undefined {
  if (quote === undefined) return undefined;
  const { rate, mid, expired } = quote;
  return { ...quote, rate: parseRate(rate), mid: parseRate(mid), inTime: !expired };
}

/** A refusal in the notation of the batch. */
function inBatch(refusal: Refusal, index: number): Refusal {
  const { param } = refusal;
  // Of an item's key the whole name is known already.
  if (param === undefined || param.startsWith('payouts[')) return refusal;
  return { ...refusal, param: paramName(['payouts', index, param]) };
}
