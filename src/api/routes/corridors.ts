import type { z } from 'zod';
import {
  corridorListParams,
  pastRateListParams,
  requirementsParams,
} from '../../contract/listParams.js';
import {
  corridorObject,
  listObject,
  pastRateObject,
  rateObject,
  requirementsObject,
} from '../../contract/objects.js';
import type { Account } from '../../db/accounts.js';
import { currentRates, listPastRates, midOf, originOf, positionOfRate } from '../../db/rates.js';
import { currentTerms } from '../../db/terms.js';
import { accountRulesOf, refuseCountry } from '../../domain/beneficiary.js';
import {
  type Corridor,
  corridorCurrencies,
  corridorOf,
  railNameOf,
  refuseClosed,
} from '../../domain/corridor.js';
import { refuse } from '../../domain/refusal.js';
import { listRoute } from '../listRoute.js';
import { type Route, refused, route } from '../route.js';

/** Returns the corridors an account can use, optionally of one currency. Like balances, they are one page. */
function corridorsOf(
  { mode }: Account,
  { terms, openings }: Awaited<ReturnType<typeof currentTerms>>,
  filter: z.infer<typeof corridorListParams>,
): readonly Corridor[] {
  const { source_currency: source, destination_currency: destination } = filter;
  const sources = source === undefined ? corridorCurrencies() : [source];
  const destinations = destination === undefined ? corridorCurrencies() : [destination];
  return sources
    .flatMap((from) => destinations.map((to) => corridorOf(terms, from, to)))
    .filter((corridor) => corridor !== undefined)
    .filter(({ rail }) => rail === railNameOf(mode))
    .filter(({ source: from, destination: to }) => refuseClosed(openings, from, to) === undefined);
}

/** Routes that describe what can be paid, where and on which terms. */
export const corridorRoutes: readonly Route[] = [
  route({
    method: 'get',
    path: '/v1/corridors',
    scope: 'read',
    // A long list costs more of the rate limit than this. The rest is charged once the response is known.
    weight: 1,
    operationId: 'listCorridors',
    summary: 'List corridors, with their fees, limits and times.',
    params: corridorListParams,
    answers: { 200: 'corridor_list' },
    handle: async ({ database }, { account }, params) => {
      const offer = await currentTerms(database, account.id);
      const corridors = corridorsOf(account, offer, params);
      const data = corridors.map((corridor) => corridorObject(corridor, offer.at));
      return { status: 200, body: listObject(data) };
    },
  }),
  route({
    method: 'get',
    path: '/v1/rates',
    scope: 'read',
    weight: 1,
    operationId: 'listRates',
    summary: 'List the current rates of quotes. To hold a rate, create a quote.',
    params: corridorListParams,
    answers: { 200: 'rate_list' },
    // A corridor without a current rate is left out, because a quote for it would be refused.
    handle: async ({ database, rateMaximumAgeMs }, { account }, params) => {
      const [rates, offer] = await Promise.all([
        currentRates(database, rateMaximumAgeMs[account.mode]),
        currentTerms(database, account.id),
      ]);
      const data = corridorsOf(account, offer, params).flatMap((corridor) => {
        const { source, destination } = corridor;
        const mid = midOf(rates, source, destination);
        if (mid === undefined) return [];
        return [rateObject(corridor, mid, originOf(rates, source, destination))];
      });
      return { status: 200, body: listObject(data) };
    },
  }),
  listRoute({
    path: '/v1/rates/history',
    scope: 'read',
    operationId: 'listPastRates',
    summary: 'List the past mid rates of two currencies, last published first.',
    params: pastRateListParams,
    answers: { 200: 'past_rate_list' },
    refusals: ['parameter_missing'],
    find: (sql, _accountId, id, { source_currency: source, destination_currency: destination }) =>
      positionOfRate(sql, id.slice('rate_'.length), [source, destination]),
    query: (sql, _accountId, page, params) =>
      listPastRates(sql, page, params.source_currency, params.destination_currency),
    render: pastRateObject,
  }),
  route({
    method: 'get',
    path: '/v1/beneficiary_requirements',
    scope: 'read',
    operationId: 'readBeneficiaryRequirements',
    summary: 'Retrieve the details that beneficiaries in a country require.',
    params: requirementsParams,
    answers: { 200: 'beneficiary_requirements' },
    refusals: ['parameter_missing', 'beneficiary_invalid', 'currency_unsupported'],
    // Returns the fields of a beneficiary in a country, optionally for one of its currencies.
    handle: async (_deps, _request, { country, currency, type }) => {
      const all = accountRulesOf(country);
      if (all.length === 0) return refused(refuseCountry(country));
      const accounts = accountRulesOf(country, currency, { sent: { type } });
      if (accounts.length === 0) {
        const expected = all[0]?.find(({ field }) => field === 'currency')?.expected;
        return refused(
          refuse('currency_unsupported', { param: 'currency', expected, received: currency }),
        );
      }
      const sent = { type, 'address[country]': country };
      const addressed = accountRulesOf(country, currency, { sent });
      const body = requirementsObject(country, currency ?? null, accounts, addressed);
      return { status: 200, body };
    },
  }),
];
