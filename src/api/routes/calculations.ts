import { calculationObject } from '../../contract/calculation.js';
import { findPayout } from '../../db/payouts.js';
import { findQuote } from '../../db/quotes.js';
import { findRates } from '../../db/rates.js';
import { findTerms } from '../../db/terms.js';
import { type ApiDeps, type ApiRequest, oneObject, type Route } from '../route.js';

/** Explains the price of the object that `find` finds, which may not have one yet. */
function explain(find: typeof findPayout | typeof findQuote) {
  return async ({ database }: ApiDeps, request: ApiRequest) => {
    const row = await find(database, request.account.id, request.id);
    if (row === undefined) return oneObject(request, undefined);
    if (row.sourceMinor === null) return oneObject(request, { object: 'calculation', steps: [] });
    const [terms, rates] = await Promise.all([
      findTerms(database, [row.feeTermsId, row.spreadTermsId]),
      findRates(database, [row.sourceRateId, row.destinationRateId]),
    ]);
    return oneObject(request, calculationObject(row, terms, rates));
  };
}

const shared = { method: 'get', scope: 'read', answers: { 200: 'calculation' } } as const;

export const calculationRoutes: readonly Route[] = [
  {
    ...shared,
    path: '/v1/quotes/:id/calculation',
    operationId: 'readQuoteCalculation',
    summary: 'Retrieve how the price of a quote was computed, step by step.',
    handle: explain(findQuote),
  },
  {
    ...shared,
    path: '/v1/payouts/:id/calculation',
    operationId: 'readPayoutCalculation',
    summary: 'Retrieve how the price of a payout was computed; no steps until it is accepted.',
    handle: explain(findPayout),
  },
];
