import { quoteObject } from '../../contract/objects.js';
import { quoteParams } from '../../contract/params.js';
import { newId } from '../../db/id.js';
import { findQuote, insertQuote } from '../../db/quotes.js';
import { currentRates, midOf } from '../../db/rates.js';
import { currentTerms, priceOriginOf } from '../../db/terms.js';
import { corridorOf, refuseClosed } from '../../domain/corridor.js';
import { price } from '../../domain/quote.js';
import { isRefusal } from '../../domain/refusal.js';
import { runIdempotently } from '../idempotency.js';
import { oneObject, type Route, route } from '../route.js';

export const quoteRoutes: readonly Route[] = [
  route({
    method: 'post',
    path: '/v1/quotes',
    scope: 'payouts:create',
    operationId: 'createQuote',
    summary: 'Create a quote: the price of a corridor, held for 30 seconds.',
    params: quoteParams,
    examples: {
      'what 1250 US dollars buy': {
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
    refusals: [
      'currency_unsupported',
      'corridor_unavailable',
      'amount_too_small',
      'amount_too_large',
      'rate_unavailable',
    ],
    handle: (deps, request, params) => {
      const { source_currency: sourceCurrency, destination_currency: destinationCurrency } = params;
      const { amount, fixed_side: fixedSide } = params;
      const asked = { sourceCurrency, destinationCurrency, amount, fixedSide };
      const id = newId('quote');
      const { id: accountId, mode } = request.account;
      return runIdempotently(deps, request, {
        objectId: id,
        status: 201,
        perform: async (sql) => {
          const pair = [sourceCurrency, destinationCurrency] as const;
          const [rates, { at: createdAt, terms, openings }] = await Promise.all([
            currentRates(sql, deps.rateMaximumAgeMs[mode], pair),
            currentTerms(sql, accountId, pair),
          ]);
          const closed = refuseClosed(openings, ...pair);
          if (closed !== undefined) return closed;
          const corridor = corridorOf(terms, ...pair);
          const priced = price({ ...asked, mid: midOf(rates, ...pair), corridor });
          if (isRefusal(priced)) return priced;
          const origin = priceOriginOf(rates, corridor);
          return insertQuote(sql, { id, accountId, ...asked, createdAt, price: priced, origin });
        },
        isOneWrite: true,
        find: findQuote,
        render: quoteObject,
      });
    },
  }),
  {
    method: 'get',
    path: '/v1/quotes/:id',
    scope: 'read',
    operationId: 'readQuote',
    summary: 'Retrieve a quote.',
    answers: { 200: 'quote' },
    handle: async ({ database }, request) => {
      const quote = await findQuote(database, request.account.id, request.id);
      return oneObject(request, quote && quoteObject(quote));
    },
  },
];
