import { balanceTransactionListParams } from '../../contract/listParams.js';
import { balanceObject, balanceTransactionObject, listObject } from '../../contract/objects.js';
import { fundParams } from '../../contract/params.js';
import {
  listBalanceTransactions,
  positionOfBalanceTransaction,
} from '../../db/balanceTransactions.js';
import { exactlyOne, type Sql } from '../../db/client.js';
import { newId } from '../../db/id.js';
import { listBalances, postEntries } from '../../db/ledger.js';
import { fundEntry } from '../../domain/ledger.js';
import { refuse } from '../../domain/refusal.js';
import { runIdempotently } from '../idempotency.js';
import { listRoute } from '../listRoute.js';
import { type Route, refused, route, validate } from '../route.js';

export const balanceRoutes: readonly Route[] = [
  {
    method: 'get',
    path: '/v1/balances',
    scope: 'read',
    operationId: 'listBalances',
    summary: 'List the balances of the account, one per currency.',
    answers: { 200: 'balance_list' },
    // Never paginated.
    handle: async ({ database }, { account }) => {
      const balances = await listBalances(database, account.id);
      return { status: 200, body: listObject(balances.map(balanceObject)) };
    },
  },
  listRoute({
    path: '/v1/balance_transactions',
    scope: 'read',
    operationId: 'listBalanceTransactions',
    summary: 'List balance transactions.',
    params: balanceTransactionListParams,
    answers: { 200: 'balance_transaction_list' },
    find: (sql, accountId, id) =>
      positionOfBalanceTransaction(sql, accountId, id.slice('txn_'.length)),
    query: (sql, accountId, page, { payout: payoutId, ...filter }) =>
      listBalanceTransactions(sql, accountId, page, { ...filter, payoutId }),
    render: balanceTransactionObject,
  }),
  route({
    method: 'post',
    path: '/v1/test/fund',
    scope: 'write',
    operationId: 'fundTestAccount',
    summary: 'Add money to the balance of a test account.',
    params: fundParams,
    examples: { '1000 US dollars': { currency: 'USD', amount: 100_000 } },
    answers: { 201: 'balance' },
    refusals: ['live_mode_unsupported'],
    read: ({ account, decoded }) =>
      account.mode === 'test'
        ? validate(fundParams, decoded)
        : refused(refuse('live_mode_unsupported')),
    // The only route that posts to the ledger directly.
    handle: (deps, request, { currency, amount }) => {
      const { id: accountId, mode } = request.account;
      return runIdempotently(deps, request, {
        objectId: newId('request'),
        status: 201,
        perform: async (sql) => {
          const entry = fundEntry(currency, amount);
          await postEntries(sql, [{ entry, mode, accountId, payoutId: null }]);
          return balanceIn(sql, accountId, currency);
        },
        find: (sql) => balanceIn(sql, accountId, currency),
        render: balanceObject,
      });
    },
  }),
];

async function balanceIn(sql: Sql, accountId: string, currency: string) {
  const balances = await listBalances(sql, accountId);
  return exactlyOne(balances.find((balance) => balance.currency === currency));
}
