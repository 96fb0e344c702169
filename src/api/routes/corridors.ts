import { corridorListParams, requirementsParams } from '../../contract/listParams.js';
import { corridorObject, listObject, requirementsObject } from '../../contract/objects.js';
import { accountRulesOf, refuseCountry } from '../../domain/beneficiary.js';
import { corridorCurrencies, findCorridor, railNameOf } from '../../domain/corridor.js';
import { refuse } from '../../domain/refusal.js';
import { type Route, refused, route } from '../route.js';

/** What can be paid, where, on which terms: the same for everybody of a mode. */
export const corridorRoutes: readonly Route[] = [
  route({
    method: 'get',
    path: '/v1/corridors',
    scope: 'read',
    // Its answer weighs more, which is owed.
    weight: 1,
    operationId: 'listCorridors',
    summary: 'List corridors, with their fees and limits.',
    params: corridorListParams,
    answers: { 200: 'corridor_list' },
    // Every corridor, or those of one currency; like balances they are one page.
    handle: async (_deps, { account }, params) => {
      const { source_currency: source, destination_currency: destination } = params;
      const sources = source === undefined ? corridorCurrencies() : [source];
      const destinations = destination === undefined ? corridorCurrencies() : [destination];
      const corridors = sources
        .flatMap((from) => destinations.map((to) => findCorridor(from, to)))
        .filter((corridor) => corridor !== undefined)
        .filter(({ rail }) => rail === railNameOf(account.mode));
      return { status: 200, body: listObject(corridors.map(corridorObject)) };
    },
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
    // The fields of a beneficiary in a country, optionally for one of its currencies.
    handle: async (_deps, _request, { country, currency }) => {
      const all = accountRulesOf(country);
      if (all.length === 0) return refused(refuseCountry(country));
      const accounts = accountRulesOf(country, currency);
      if (accounts.length === 0) {
        const expected = all[0]?.find(({ field }) => field === 'currency')?.expected;
        return refused(
          refuse('currency_unsupported', { param: 'currency', expected, received: currency }),
        );
      }
      return { status: 200, body: requirementsObject(country, currency ?? null, accounts) };
    },
  }),
];
