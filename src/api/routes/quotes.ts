import { quoteObject } from '../../contract/objects.js';
import { quoteParams } from '../../contract/params.js';
import type { Sql } from '../../db/client.js';
import { newId } from '../../db/id.js';
import { findQuote, insertQuote } from '../../db/quotes.js';
import { currentRates, midOf, originOf } from '../../db/rates.js';
import { price } from '../../domain/quote.js';
import { isRefusal } from '../../domain/refusal.js';
import { runIdempotently } from '../idempotency.js';
import {
  type Answer,
  type ApiDeps,
  type ApiRequest,
  notFound,
  type Route,
  refused,
} from '../route.js';
import { validate } from '../validate.js';

export const quoteRoutes: readonly Route[] = [
  {
    method: 'post',
    path: '/v1/quotes',
    scope: 'payouts:create',
    handle: createQuote,
    operationId: 'createQuote',
    summary: 'Price a corridor and hold the rate for 30 seconds.',
    params: quoteParams,
    examples: {
      'what 1250 US dollars come to': {
        source_currency: 'USD',
        destination_currency: 'EUR',
        amount: 125_000,
      },
      'what 1000 euros cost': {
        source_currency: 'USD',
        destination_currency: 'EUR',
        amount: 100_000,
        fixed_side: 'destination',
      },
    },
    answers: { 201: 'quote' },
    refusals: ['currency_unsupported', 'amount_too_small', 'amount_too_large', 'rate_unavailable'],
  },
  {
    method: 'get',
    path: '/v1/quotes/:id',
    scope: 'read',
    handle: readQuote,
    operationId: 'readQuote',
    summary: 'Read a quote.',
    answers: { 200: 'quote' },
  },
];

/** Prices a corridor and holds the rate for 30 seconds. */
async function createQuote(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const validated = validate(quoteParams, request.decoded);
  if ('refusals' in validated) return validated;
  const { source_currency: sourceCurrency, destination_currency: destinationCurrency } =
    validated.params;
  const { amount, fixed_side: fixedSide } = validated.params;
  const accountId = request.account.id;
  const id = newId('quote');
  return runIdempotently(deps, request, {
    objectId: id,
    status: 201,
    perform: async (sql) => {
      const rates = await currentRates(sql, deps.rateMaximumAgeMs);
      const asked = { sourceCurrency, destinationCurrency, amount, fixedSide };
      const mid = midOf(rates, sourceCurrency, destinationCurrency);
      const priced = price({ ...asked, mid });
      if (isRefusal(priced)) return priced;
      const origin = originOf(rates, sourceCurrency, destinationCurrency);
      return quoteObject(
        await insertQuote(sql, { id, accountId, ...asked, price: priced, origin }),
      );
    },
    replay: (sql, objectId) => existingQuote(sql, accountId, objectId),
  });
}

async function readQuote(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const quote = await findQuote(deps.database, request.account.id, request.id);
  if (quote === undefined) return refused(notFound(request));
  return { status: 200, body: quoteObject(quote) };
}

async function existingQuote(sql: Sql, accountId: string, id: string) {
  const quote = await findQuote(sql, accountId, id);
  if (quote === undefined) throw new Error(`The quote ${id} of a bound key has vanished.`);
  return quoteObject(quote);
}
