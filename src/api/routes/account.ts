import { accountObject } from '../../contract/objects.js';
import { accountParams } from '../../contract/params.js';
import { findAccount, setApiVersion } from '../../db/accounts.js';
import { exactlyOne } from '../../db/client.js';
import { runIdempotently } from '../idempotency.js';
import type { Answer, ApiDeps, ApiRequest, Route } from '../route.js';
import { validate } from '../validate.js';

export const accountRoutes: readonly Route[] = [
  {
    method: 'get',
    path: '/v1/account',
    scope: 'read',
    handle: readAccount,
    operationId: 'readAccount',
    summary: 'Read the account of the API key.',
    answers: { 200: 'account' },
  },
  {
    method: 'post',
    path: '/v1/account',
    scope: 'write',
    handle: changeAccount,
    operationId: 'changeAccount',
    summary: 'Opt the account in to an API version.',
    params: accountParams,
    examples: { 'the first version': { api_version: '2026-06-01' } },
    answers: { 200: 'account' },
  },
];

async function readAccount(_deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  return { status: 200, body: accountObject(request.account) };
}

/** Opts the account in to another API version; nothing else ever moves it. */
async function changeAccount(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const validated = validate(accountParams, request.decoded);
  if ('refusals' in validated) return validated;
  const { id } = request.account;
  return runIdempotently(deps, request, {
    objectId: id,
    status: 200,
    perform: async (sql) =>
      accountObject(await setApiVersion(sql, id, validated.params.api_version)),
    replay: async (sql) => accountObject(exactlyOne(await findAccount(sql, id))),
  });
}
