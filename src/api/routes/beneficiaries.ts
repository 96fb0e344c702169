import { isDeepStrictEqual } from 'node:util';
import { beneficiaryListParams } from '../../contract/listParams.js';
import { beneficiaryParams, beneficiaryUpdateParams } from '../../contract/params.js';
import {
  type BeneficiaryRow,
  deleteBeneficiary,
  findBeneficiary,
  insertBeneficiary,
  listBeneficiaries,
  lockBeneficiary,
  updateBeneficiary,
} from '../../db/beneficiaries.js';
import { exactlyOne } from '../../db/client.js';
import { newId } from '../../db/id.js';
import { type Keyring, openDetails } from '../../db/personalData.js';
import { updateDetails, validateBeneficiary } from '../../domain/beneficiary.js';
import { meaningOf, type Refusal, refuse } from '../../domain/refusal.js';
import { type DecodedObject, flatten } from '../decoded.js';
import { shownBeneficiary } from '../expand.js';
import { changeOnce, runIdempotently } from '../idempotency.js';
import { byIdIn, listRoute } from '../listRoute.js';
import { malformedFirst } from '../problem.js';
import { type Answer, notFound, oneObject, type Route, route, validate } from '../route.js';

/**
 * Maximum number of versions of a beneficiary, which is also the database's limit. It stops a program that
 * updates without end.
 */
const maxVersions = 1_000;

/** Returns the first refusal, for the key to keep: without the value sent, which may identify a person. */
function keptRefusal([first]: readonly Refusal[]): Refusal {
  return { ...exactlyOne(first), received: undefined };
}

/** Returns all refusals in full for the first request. The key keeps only one, with its advice. */
function withAll(answer: Answer, [first, ...others]: readonly Refusal[]): Answer {
  if (!('refusals' in answer) || first === undefined) return answer;
  const [kept] = answer.refusals;
  if (kept?.code !== first.code) return answer;
  return { ...answer, refusals: [{ ...kept, received: first.received }, ...others] };
}

/** Returns what was sent, with the parts of the address under the names that they have in a form. */
const detailsOf = (decoded: DecodedObject) =>
  Object.fromEntries([
    // An address without parts counts as sent too.
    ...(Object.hasOwn(decoded, 'address') ? [['address', '']] : []),
    ...flatten(decoded),
  ]);

/** How a route finds and renders the beneficiary that it has changed. */
const shown = (keyring: Keyring) => ({
  find: findBeneficiary,
  render: (row: BeneficiaryRow) => shownBeneficiary(keyring, row),
});

const today = () => new Date().toISOString().slice(0, 10);

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
    // Reports details that cannot be parsed together with those that break the rules, in the words of the
    // field's own rule where there is one.
    read: ({ decoded }) => {
      const validated = validate(beneficiaryParams, decoded);
      if ('params' in validated) return validated;
      const details = validateBeneficiary(detailsOf(decoded), today());
      const broken = 'country' in details ? [] : details;
      const refusals = validated.refusals.map((one) => {
        const own = broken.find(
          ({ code, param }) => code !== 'parameter_unknown' && param === one.param,
        );
        const hint = own && one.isBare ? undefined : one.hint;
        return { ...one, expected: own?.expected ?? one.expected, hint };
      });
      const isNew = ({ param }: Refusal) => refusals.every((one) => one.param !== param);
      return { refusals: [...refusals, ...broken.filter(isNew)] };
    },
    // A malformed request does not bind its key. Well-formed details that break the rules do bind it.
    handle: async (deps, request) => {
      const details = validateBeneficiary(detailsOf(request.decoded), today());
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
            : keptRefusal(refusals),
        ...shown(keyring),
      });
      return withAll(answer, refusals);
    },
  }),
  route({
    method: 'post',
    path: '/v1/beneficiaries/:id',
    scope: 'write',
    operationId: 'updateBeneficiary',
    summary: 'Update a beneficiary. Accepted payouts are still sent with the previous details.',
    params: beneficiaryUpdateParams,
    examples: {
      'another account number': { iban: 'DE75512108001245126199' },
    },
    answers: { 200: 'beneficiary' },
    refusals: ['beneficiary_invalid', 'limit_reached'],
    handle: async (deps, request) => {
      const { keyring } = deps;
      let refusals: readonly Refusal[] = [];
      const answer = await runIdempotently(deps, request, {
        objectId: request.id,
        status: 200,
        perform: async (sql): Promise<BeneficiaryRow | Refusal> => {
          const row = await lockBeneficiary(sql, request.account.id, request.id);
          const details = row?.deletedAt === null ? openDetails(keyring, row) : undefined;
          if (row === undefined || details === undefined) return notFound(request);
          const updated = updateDetails(details, detailsOf(request.decoded), today());
          if (!('country' in updated)) {
            // The key keeps the first one, or none if that is malformed.
            refusals = malformedFirst(updated);
            return keptRefusal(refusals);
          }
          // An update that changes nothing creates no version.
          if (isDeepStrictEqual(updated, details)) return row;
          if (row.version < maxVersions) return updateBeneficiary(sql, keyring, row, updated);
          return refuse('limit_reached', { expected: `at most ${maxVersions} versions` });
        },
        ...shown(keyring),
      });
      return withAll(answer, refusals);
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
    handle: (deps, request) => changeOnce(deps, request, deleteBeneficiary, shown(deps.keyring)),
  },
];
