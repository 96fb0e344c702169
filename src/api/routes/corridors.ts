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
import { inSlices, type Steps } from '../slices.js';

/**
 * Renders each corridor that an account can use, optionally of one currency. Like balances, they are one
 * page, but there may be more than a thousand, so they are rendered in steps.
 */
function* corridorsOf<T>(
  { mode }: Account,
  { terms, openings }: Awaited<ReturnType<typeof currentTerms>>,
  filter: z.infer<typeof corridorListParams>,
  objectOf: (corridor: Corridor) => T | undefined,
): Steps<readonly T[]> {
  const { source_currency: source, destination_currency: destination } = filter;
  const sources = source === undefined ? corridorCurrencies() : [source];
  const destinations = destination === undefined ? corridorCurrencies() : [destination];
  const objects: T[] = [];
  for (const from of sources) {
    for (const to of destinations) {
      const corridor = corridorOf(terms, from, to);
      const isServed = corridor?.rail === railNameOf(mode) && !refuseClosed(openings, from, to);
      const object = corridor && isServed ? objectOf(corridor) : undefined;
      if (object !== undefined) objects.push(object);
      yield;
    }
  }
  return objects;
}

/** Routes that describe what can be paid, where and on which terms. */
export const corridorRoutes: readonly Route[] = [
  route({
    method: 'get',
    path: '/v1/corridors',
    scope: 'read',
    isLong: true,
    operationId: 'listCorridors',
    summary: 'List corridors, with their fees, limits and times.',
    params: corridorListParams,
    answers: { 200: 'corridor_list' },
    handle: async ({ database }, { account }, params) => {
      const offer = await currentTerms(database, account.id);
      const objectOf = (corridor: Corridor) => corridorObject(corridor, offer.at);
      const data = await inSlices(corridorsOf(account, offer, params, objectOf));
      return { status: 200, body: listObject(data) };
    },
  }),
  route({
    method: 'get',
    path: '/v1/rates',
    scope: 'read',
    isLong: true,
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
      const objectOf = (corridor: Corridor) => {
        const { source, destination } = corridor;
        const mid = midOf(rates, source, destination);
        return mid && rateObject(corridor, mid, originOf(rates, source, destination));
      };
      const data = await inSlices(corridorsOf(account, offer, params, objectOf));
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
