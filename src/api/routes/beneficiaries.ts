import { beneficiaryListParams } from '../../contract/listParams.js';
import { beneficiaryParams } from '../../contract/params.js';
import {
  type BeneficiaryRow,
  deleteBeneficiary,
  findBeneficiary,
  insertBeneficiary,
  listBeneficiaries,
} from '../../db/beneficiaries.js';
import { exactlyOne } from '../../db/client.js';
import { newId } from '../../db/id.js';
import { validateBeneficiary } from '../../domain/beneficiary.js';
import { meaningOf, type Refusal } from '../../domain/refusal.js';
import { type DecodedObject, flatten } from '../decoded.js';
import { shownBeneficiary } from '../expand.js';
import { deleteOnce, runIdempotently } from '../idempotency.js';
import { byIdIn, listRoute } from '../listRoute.js';
import { oneObject, type Route, route, validate } from '../route.js';

/** Checks what was sent, with the parts of the address under the names that a form has for them. */
const validateSent = (decoded: DecodedObject, unread: ReadonlySet<string>) =>
  validateBeneficiary(
    Object.fromEntries(flatten(decoded).filter(([name]) => !unread.has(name))),
    new Date().toISOString().slice(0, 10),
  );

export const beneficiaryRoutes: readonly Route[] = [
  route({
    method: 'post',
    path: '/v1/beneficiaries',
    scope: 'write',
    operationId: 'createBeneficiary',
    summary: 'Create a beneficiary. Its details are validated by the rules of its country.',
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
    // What cannot be read of the details is reported together with what breaks the rules.
    read: ({ decoded }) => {
      const validated = validate(beneficiaryParams, decoded);
      if ('params' in validated) return validated;
      const { refusals } = validated;
      const unread = new Set(refusals.flatMap(({ param }) => param ?? []));
      const details = validateSent(decoded, unread);
      if ('country' in details) return { refusals };
      return { refusals: [...refusals, ...details.filter(({ param = '' }) => !unread.has(param))] };
    },
    // A malformed request binds no key; details that are understood and wrong do.
    handle: async (deps, request) => {
      const details = validateSent(request.decoded, new Set());
      const refusals = 'country' in details ? [] : details;
      if (refusals.some(({ code }) => meaningOf(code).status === 400)) return { refusals };
      const id = newId('beneficiary');
      const accountId = request.account.id;
      const { keyring } = deps;
      const answer = await runIdempotently(deps, request, {
        objectId: id,
        status: 201,
        perform: async (sql): Promise<BeneficiaryRow | Refusal> =>
          'country' in details
            ? insertBeneficiary(sql, keyring, { id, accountId, details })
            : { ...exactlyOne(refusals[0]), received: undefined },
        find: findBeneficiary,
        render: (row) => shownBeneficiary(keyring, row),
      });
      // The key keeps the first refusal, without what was sent, which may say who somebody is; the
      // caller gets all of them in full while the request is the same.
      return 'refusals' in answer && answer.refusals[0]?.code === refusals[0]?.code
        ? { ...answer, refusals }
        : answer;
    },
  }),
  listRoute({
    path: '/v1/beneficiaries',
    scope: 'read',
    operationId: 'listBeneficiaries',
    summary: 'List beneficiaries.',
    params: beneficiaryListParams,
    answers: { 200: 'beneficiary_list' },
    find: byIdIn('beneficiaries'),
    query: async (sql, accountId, page, { keyring, ...filter }) => {
      const found = await listBeneficiaries(sql, accountId, page, filter);
      return { ...found, rows: found.rows.map((row) => shownBeneficiary(keyring, row)) };
    },
    render: (beneficiary) => beneficiary,
  }),
  {
    method: 'get',
    path: '/v1/beneficiaries/:id',
    scope: 'read',
    operationId: 'readBeneficiary',
    summary: 'Retrieve a beneficiary, with masked account numbers.',
    answers: { 200: 'beneficiary' },
    handle: async ({ database, keyring }, request) => {
      const row = await findBeneficiary(database, request.account.id, request.id);
      const found = row?.deletedAt === null ? shownBeneficiary(keyring, row) : undefined;
      return oneObject(request, found);
    },
  },
  {
    method: 'delete',
    path: '/v1/beneficiaries/:id',
    scope: 'write',
    operationId: 'deleteBeneficiary',
    summary: 'Delete a beneficiary. Accepted payouts to it are still sent.',
    answers: { 200: 'beneficiary' },
    handle: (deps, request) =>
      deleteOnce(deps, request, deleteBeneficiary, {
        find: findBeneficiary,
        render: (row) => shownBeneficiary(deps.keyring, row),
      }),
  },
];
