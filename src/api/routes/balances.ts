import { balanceTransactionListParams } from '../../contract/listParams.js';
import { balanceObject, balanceTransactionObject, listObject } from '../../contract/objects.js';
import { fundParams } from '../../contract/params.js';
import {
  listBalanceTransactions,
  positionOfBalanceTransaction,
} from '../../db/balanceTransactions.js';
import type { Sql } from '../../db/client.js';
import { newId } from '../../db/id.js';
import { listBalances, postEntries } from '../../db/ledger.js';
import { fundEntry } from '../../domain/ledger.js';
import { refuse } from '../../domain/refusal.js';
import { runIdempotently } from '../idempotency.js';
import { pageAnswer, readPage } from '../listPage.js';
import { type Answer, type ApiDeps, type ApiRequest, type Route, refused } from '../route.js';
import { validate } from '../validate.js';

export const balanceRoutes: readonly Route[] = [
  {
    method: 'get',
    path: '/v1/balances',
    scope: 'read',
    handle: readBalances,
    operationId: 'listBalances',
    summary: 'List every currency balance of the account.',
    answers: { 200: 'balance_list' },
  },
  {
    method: 'get',
    path: '/v1/balance_transactions',
    scope: 'read',
    handle: readTransactions,
    operationId: 'listBalanceTransactions',
    summary: 'List what moved the balances of the account.',
    params: balanceTransactionListParams,
    answers: { 200: 'balance_transaction_list' },
    refusals: ['cursor_not_found', 'parameters_exclusive'],
  },
  {
    method: 'post',
    path: '/v1/test/fund',
    scope: 'write',
    handle: fund,
    operationId: 'fundTestAccount',
    summary: 'Put money on a test account.',
    params: fundParams,
    examples: { '1000 US dollars': { currency: 'USD', amount: 100_000 } },
    answers: { 201: 'balance' },
    refusals: ['live_mode_unsupported'],
  },
];

/** Every currency balance of the account; never paginated. */
async function readBalances(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const balances = await listBalances(deps.database, request.account.id);
  return { status: 200, body: listObject(balances.map(balanceObject)) };
}

/** What moved the balances, posting by posting. */
async function readTransactions(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const validated = validate(balanceTransactionListParams, request.decoded);
  if ('refusals' in validated) return validated;
  const { payout: payoutId, ...params } = validated.params;
  const page = await readPage(deps, request, params, (sql, accountId, id) =>
    positionOfBalanceTransaction(sql, accountId, id.slice('txn_'.length)),
  );
  if ('refusals' in page) return page;
  const filter = {
    created: params.created,
    currency: params.currency,
    type: params.type,
    payoutId,
  };
  const { id: accountId } = request.account;
  const transactions = await listBalanceTransactions(deps.database, accountId, page, filter);
  return pageAnswer(transactions, balanceTransactionObject);
}

/** Puts money on a test account: the one route that posts to the ledger by itself. */
async function fund(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const { account } = request;
  if (account.mode !== 'test') return refused(refuse('live_mode_unsupported'));
  const validated = validate(fundParams, request.decoded);
  if ('refusals' in validated) return validated;
  const { currency, amount } = validated.params;
  return runIdempotently(deps, request, {
    objectId: newId('request'),
    status: 201,
    perform: async (sql) => {
      const entry = fundEntry(currency, amount);
      await postEntries(sql, [
        { entry, mode: account.mode, accountId: account.id, payoutId: null },
      ]);
      return balanceIn(sql, account.id, currency);
    },
    replay: (sql) => balanceIn(sql, account.id, currency),
  });
}

async function balanceIn(sql: Sql, accountId: string, currency: string) {
  const balances = await listBalances(sql, accountId);
  const balance = balances.find((candidate) => candidate.currency === currency);
  if (balance === undefined) throw new Error(`A funded account has no ${currency} balance.`);
  return balanceObject(balance);
}
