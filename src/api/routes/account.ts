import {
  accountObject,
  limitObject,
  listObject,
  payeeDelayObject,
} from '../../contract/objects.js';
import { accountParams } from '../../contract/params.js';
import { findAccount, setApiVersion } from '../../db/accounts.js';
import { findFunds } from '../../db/ledger.js';
import { runIdempotently } from '../idempotency.js';
import { type Route, route } from '../route.js';

export const accountRoutes: readonly Route[] = [
  {
    method: 'get',
    path: '/v1/account',
    scope: 'read',
    operationId: 'readAccount',
    summary: 'Retrieve the account of the API key.',
    answers: { 200: 'account' },
    handle: async (_deps, { account }) => ({ status: 200, body: accountObject(account) }),
  },
  {
    method: 'get',
    path: '/v1/limits',
    scope: 'read',
    operationId: 'listLimits',
    summary: 'List the limits of the account, and how much of each is used.',
    answers: { 200: 'limit_list' },
    // At most four per currency and three per corridor, depending on what an operator has set.
    handle: async ({ database }, { account }) => {
      const { limitUses, payeeDelays } = await findFunds(database, account.id);
      const limits = [...limitUses].flatMap(([currency, each]) =>
        each.map((use) => limitObject(currency, use)),
      );
      return { status: 200, body: listObject([...limits, ...payeeDelays.map(payeeDelayObject)]) };
    },
  },
  route({
    method: 'post',
    path: '/v1/account',
    scope: 'write',
    operationId: 'changeAccount',
    summary: 'Set the default API version of the account.',
    params: accountParams,
    examples: { 'the first version': { api_version: '2026-06-01' } },
    answers: { 200: 'account' },
    // Nothing else ever changes the version.
    handle: (deps, request, { api_version: version }) =>
      runIdempotently(deps, request, {
        objectId: request.account.id,
        status: 200,
        perform: (sql) => setApiVersion(sql, request.account.id, version),
        find: findAccount,
        render: accountObject,
      }),
  }),
];
