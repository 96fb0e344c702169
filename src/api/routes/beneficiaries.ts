import { beneficiaryListParams } from '../../contract/listParams.js';
import { beneficiaryObject } from '../../contract/objects.js';
import { beneficiaryParams } from '../../contract/params.js';
import {
  deleteBeneficiary,
  findBeneficiary,
  insertBeneficiary,
  listBeneficiaries,
} from '../../db/beneficiaries.js';
import type { Sql } from '../../db/client.js';
import { newId } from '../../db/id.js';
import { validateBeneficiary } from '../../domain/beneficiary.js';
import { meaningOf } from '../../domain/refusal.js';
import type { DecodedObject } from '../decoded.js';
import { runIdempotently } from '../idempotency.js';
import { byIdIn, pageAnswer, readPage } from '../listPage.js';
import {
  type Answer,
  type ApiDeps,
  type ApiRequest,
  notFound,
  type Route,
  refused,
} from '../route.js';
import { validate } from '../validate.js';

export const beneficiaryRoutes: readonly Route[] = [
  {
    method: 'post',
    path: '/v1/beneficiaries',
    scope: 'write',
    handle: createBeneficiary,
    operationId: 'createBeneficiary',
    summary: 'Store a beneficiary after its details were checked by the rules of its country.',
    params: beneficiaryParams,
    examples: {
      'an account in Germany': {
        type: 'individual',
        name: 'Ada Lovelace',
        country: 'DE',
        currency: 'EUR',
        iban: 'DE89370400440532013000',
      },
      'an account in the United States': {
        type: 'business',
        name: 'Babbage Engines',
        country: 'US',
        currency: 'USD',
        account_number: '000123456789',
        routing_number: '021000021',
      },
    },
    answers: { 201: 'beneficiary' },
    refusals: ['beneficiary_invalid'],
  },
  {
    method: 'get',
    path: '/v1/beneficiaries',
    scope: 'read',
    handle: list,
    operationId: 'listBeneficiaries',
    summary: 'List the beneficiaries of the account.',
    params: beneficiaryListParams,
    answers: { 200: 'beneficiary_list' },
    refusals: ['cursor_not_found', 'parameters_exclusive'],
  },
  {
    method: 'get',
    path: '/v1/beneficiaries/:id',
    scope: 'read',
    handle: readBeneficiary,
    operationId: 'readBeneficiary',
    summary: 'Read a beneficiary, its account numbers masked.',
    answers: { 200: 'beneficiary' },
  },
  {
    method: 'delete',
    path: '/v1/beneficiaries/:id',
    scope: 'write',
    handle: removeBeneficiary,
    operationId: 'deleteBeneficiary',
    summary: 'Delete a beneficiary; payouts that were accepted still reach it.',
    answers: { 200: 'beneficiary' },
  },
];

/** Stores a beneficiary after its details passed the rules of its country. */
async function createBeneficiary(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const details = readDetails(request.decoded);
  if (!('country' in details)) return refuseDetails(deps, request, details);
  const id = newId('beneficiary');
  const accountId = request.account.id;
  return runIdempotently(deps, request, {
    objectId: id,
    status: 201,
    perform: async (sql) =>
      beneficiaryObject(await insertBeneficiary(sql, { id, accountId, details })),
    replay: (sql, objectId) => existingBeneficiary(sql, accountId, objectId),
  });
}

/** Checks the details; what cannot be read is told together with what breaks the rules. */
function readDetails(decoded: DecodedObject): ReturnType<typeof validateBeneficiary> {
  const validated = validate(beneficiaryParams, decoded);
  if ('params' in validated) return validateBeneficiary(validated.params);
  const { refusals } = validated;
  const unread = new Set(refusals.map(({ param }) => param));
  const readable = Object.entries(decoded).flatMap(([name, value]) =>
    typeof value === 'string' && !unread.has(name) ? [[name, value] as const] : [],
  );
  const details = validateBeneficiary(Object.fromEntries(readable));
  if ('country' in details) return refusals;
  return [...refusals, ...details.filter(({ param = '' }) => !unread.has(param))];
}

/** A malformed request binds no key; details that are understood and wrong do. */
async function refuseDetails(
  deps: ApiDeps,
  request: ApiRequest,
  refusals: Exclude<ReturnType<typeof validateBeneficiary>, { readonly country: string }>,
): Promise<Answer> {
  const [first] = refusals;
  const isMalformed = refusals.some((refusal) => meaningOf(refusal.code).status === 400);
  if (isMalformed || first === undefined) return { refusals };
  const answer = await runIdempotently(deps, request, {
    objectId: newId('beneficiary'),
    status: 201,
    perform: () => Promise.resolve(first),
    replay: () => Promise.reject(new Error('A refused beneficiary cannot be replayed.')),
  });
  // The key keeps the first refusal; the caller gets all of them while the request is the same.
  return 'refusals' in answer && answer.refusals[0]?.code === first.code
    ? { ...answer, refusals }
    : answer;
}

async function readBeneficiary(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const row = await findBeneficiary(deps.database, request.account.id, request.id);
  if (row === undefined || row.deletedAt !== null) {
    return refused(notFound(request));
  }
  return { status: 200, body: beneficiaryObject(row) };
}

async function list(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const validated = validate(beneficiaryListParams, request.decoded);
  if ('refusals' in validated) return validated;
  const page = await readPage(deps, request, validated.params, byIdIn('beneficiaries'));
  if ('refusals' in page) return page;
  const { id: accountId } = request.account;
  const stored = await listBeneficiaries(deps.database, accountId, page, validated.params);
  return pageAnswer(stored, beneficiaryObject);
}

async function removeBeneficiary(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const accountId = request.account.id;
  return runIdempotently(deps, request, {
    objectId: request.id,
    status: 200,
    perform: async (sql) => {
      const row = await deleteBeneficiary(sql, accountId, request.id);
      if (row === undefined) return notFound(request);
      return beneficiaryObject(row);
    },
    replay: (sql, objectId) => existingBeneficiary(sql, accountId, objectId),
  });
}

async function existingBeneficiary(sql: Sql, accountId: string, id: string) {
  const row = await findBeneficiary(sql, accountId, id);
  if (row === undefined) throw new Error(`The beneficiary ${id} of a bound key has vanished.`);
  return beneficiaryObject(row);
}
