import { setTimeout as delay } from 'node:timers/promises';
import { payoutListParams, payoutReadParams } from '../../contract/listParams.js';
import { payoutObject } from '../../contract/objects.js';
import { type PayoutParams, payoutParams } from '../../contract/params.js';
import { takeOver } from '../../db/chunks.js';
import { exactlyOne, type Sql } from '../../db/client.js';
import { newId } from '../../db/id.js';
import { isSearch, listPayouts } from '../../db/payoutLists.js';
import {
  findPayout,
  findRetried,
  insertPayout,
  lockRetried,
  type NewPayout,
  type PayoutRow,
  requestCancellation,
} from '../../db/payouts.js';
import { refuseRetry, retryExpected } from '../../domain/acceptance.js';
import { hasConflictingReports, isFinal, type WakeablePayout } from '../../domain/payout.js';
import { isRefusal, type Refusal, refuse, revealsFunds } from '../../domain/refusal.js';
import { observe } from '../../metrics.js';
import { runUpdate, startPayout, tryTemporal } from '../../temporal/workflowCalls.js';
import { cancelUpdate } from '../../workflows/messages.js';
import { maxProblems } from '../decoded.js';
import { expandPayouts } from '../expand.js';
import { bindRequest, recordOnce, withAdvice } from '../idempotency.js';
import { byIdIn, listRoute } from '../listRoute.js';
import {
  type Answer,
  type ApiDeps,
  type ApiRequest,
  notFound,
  oneObject,
  type Route,
  refused,
  route,
  validate,
  withoutConsequences,
} from '../route.js';

/** Timeout of a cancellation. A void at the rail is one call; if the rail is slow, the outcome stays open. */
const cancelLimitMs = 10_000;

export const payoutRoutes: readonly Route[] = [
  route({
    method: 'post',
    path: '/v1/payouts',
    scope: 'payouts:create',
    operationId: 'createPayout',
    summary: 'Create a payout from a quote or at the live rate; 202 if it is not decided yet.',
    params: payoutParams,
    examples: {
      'against a quote': {
        quote: 'qt_01ky',
        beneficiary: 'bnf_01ky',
        reference: 'Invoice 7',
        metadata: { order: '7' },
      },
      'at the live rate': { beneficiary: 'bnf_01ky', source_currency: 'USD', amount: 5_000 },
    },
    answers: { 201: 'payout', 202: 'payout' },
    refusals: [
      'parameters_exclusive',
      'retry_refused',
      'quote_not_found',
      'quote_expired',
      'quote_used',
      'beneficiary_not_found',
      'currency_unsupported',
      'currency_mismatch',
      'corridor_unavailable',
      'amount_too_small',
      'amount_too_large',
      'limit_exceeded',
      'insufficient_funds',
      'rate_unavailable',
      // Refusals of a batch item that used the same key before.
      ...(['batch_refused', 'rate_expired'] as const),
    ],
    supportsPreferWait: true,
    // Reports invalid parameters together with those that exclude each other.
    read: ({ decoded }) => {
      const validated = validate(payoutParams, decoded);
      const conflicts = conflictingParams(decoded);
      if ('params' in validated && conflicts.length === 0) return validated;
      const refusals = [...('refusals' in validated ? validated.refusals : []), ...conflicts];
      return { refusals: withoutConsequences(refusals).slice(0, maxProblems) };
    },
    handle: createPayout,
  }),
  listRoute({
    path: '/v1/payouts',
    scope: 'read',
    operationId: 'listPayouts',
    summary: 'List payouts.',
    params: payoutListParams,
    answers: { 200: 'payout_list' },
    refusals: ['list_too_broad'],
    find: byIdIn('payouts'),
    query: async (sql, accountId, page, { expand, keyring, ...filter }) => {
      const payouts = await listPayouts(sql, accountId, page, filter);
      if (payouts === 'too broad') return tooBroad;
      const rows = await expandPayouts({ sql, keyring }, accountId, payouts.rows, expand);
      return { ...payouts, rows };
    },
    render: (payout) => payout,
    restMs: (params) => (isSearch(params) ? searchRestMs * (params.status?.length ?? 1) : 0),
  }),
  route({
    method: 'get',
    path: '/v1/payouts/:id',
    scope: 'read',
    operationId: 'readPayout',
    summary: 'Retrieve a payout.',
    params: payoutReadParams,
    answers: { 200: 'expanded_payout' },
    handle: async ({ database: sql, keyring }, request, { expand }) => {
      const { id: accountId } = request.account;
      const row = await findPayout(sql, accountId, request.id);
      const rows = row === undefined ? [] : [row];
      const [payout] = await expandPayouts({ sql, keyring }, accountId, rows, expand);
      return oneObject(request, payout);
    },
  }),
  {
    method: 'post',
    path: '/v1/payouts/:id/cancel',
    scope: 'write',
    operationId: 'cancelPayout',
    summary: 'Cancel a payout that the rail has not accepted.',
    answers: { 200: 'payout' },
    refusals: ['payout_not_cancelable'],
    handle: cancelPayout,
  },
];

/**
 * Rest after a search, for each requested status. A search reads thousands of rows of each status, which
 * takes 10 to 20 ms. With these rests, an endless stream of searches from one account uses a third of one
 * processor.
 */
const searchRestMs = 100;

/** 422, because the same filters are refused whenever they are sent. */
const tooBroad = refuse('list_too_broad', {
  param: 'created',
  expected: 'a shorter period from created[gte] to created[lt], or a filter that few payouts match',
});

/**
 * Records the request, then has the payout's workflow decide it. The row and the key are written in one
 * transaction. From then on the response is read from the row, whatever happens in Temporal.
 */
async function createPayout(
  deps: ApiDeps,
  request: ApiRequest,
  params: PayoutParams,
): Promise<Answer> {
  const startedMs = performance.now();
  const id = newId('payout');
  const payout = newPayout(id, request, params);
  let recorded: WakeablePayout | undefined;
  const bound = await recordOnce(deps, request, { objectId: id, rowCount: 1 }, async (sql) => {
    const refusal = await refusedRetry(sql, request, id, params.retry_of);
    if (refusal === undefined) recorded = await insertPayout(sql, payout, params.retry_of);
    return refusal;
  });
  if (isRefusal(bound)) return refused(bound);
  if (bound.refusal !== null) {
    return { ...refused(redactedFor(request, bound.refusal)), headers: bound.headers };
  }
  request.name({ payout: bound.objectId });
  // A repeated request decides its payout only if that is still undecided.
  const find = () => findPayout(deps.database, request.account.id, bound.objectId);
  const replayed = bound.isReplay ? exactlyOne(await find()) : undefined;
  const toDecide = replayed?.status === 'pending' ? replayed : recorded;
  if (toDecide !== undefined) {
    // Waits from now on, because the decision may come before the answer of Temporal.
    const decision = deps.decisionWaits.until(toDecide.id, deps.decisionLimitMs);
    const start = () => startPayout(deps.temporal, toDecide, deps.decisionLimitMs);
    if (await tryTemporal(deps, { payout: toDecide.id }, start)) await decision;
    observe('payout_acceptance_seconds', {}, (performance.now() - startedMs) / 1000);
  }
  const decided = await untilFinal(deps, request, bound.objectId);
  const { waitMs } = request;
  const applied = waitMs === 0 ? {} : { 'Preference-Applied': `wait=${waitMs / 1000}` };
  return answerOf(request, decided, { ...bound.headers, ...applied });
}

/** Returns why a payout may not retry another one. Only keys that may read learn what became of that one. */
async function refusedRetry(
  sql: Sql,
  request: ApiRequest,
  by: string,
  id: string | undefined,
): Promise<Refusal | undefined> {
  if (id === undefined) return undefined;
  const { account } = request;
  await lockRetried(sql, account.id, id);
  const retried = await findRetried(sql, account.id, id);
  const refusal =
    retried === undefined
      ? refuse('retry_refused', { ...retryExpected, received: id })
      : refuseRetry(by, retried);
  return refusal && redactedFor(request, refusal);
}

/** Hides what became of a payout from keys that may not read it. */
function redactedFor({ scopes }: Pick<ApiRequest, 'scopes'>, refusal: Refusal): Refusal {
  return scopes.includes('read') ? refusal : withoutDetail(refusal);
}

/** Cancels a payout. Idempotent: canceling a canceled payout succeeds. */
async function cancelPayout(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const row = await findPayout(deps.database, request.account.id, request.id);
  if (row === undefined) return refused(notFound(request));
  // No payout that the rail has accepted is ever canceled, so its workflow is not asked.
  const isTooLate = isFinal(row.status) || row.status === 'sent';
  const begun = await deps.writes(request.account.id, async () => {
    const bound = await bindRequest(deps.database, deps, request, { objectId: row.id });
    if (isRefusal(bound)) return bound;
    await requestCancellation(deps.database, row.id);
    // A batch item gets its own workflow for this, unless it is too late or not decided yet.
    const taken = isTooLate ? undefined : await takeOver(deps.database, row.id);
    return { ...bound, isUndecided: taken?.isUndecided };
  });
  if (isRefusal(begun)) return refused(begun);
  const { headers, isUndecided } = begun;
  const object = { payout: row.id };
  const update = { name: cancelUpdate.name, args: [] };
  const isAnswered =
    isTooLate ||
    isUndecided ||
    (await tryTemporal(deps, object, () => runUpdate(deps.temporal, row, update, cancelLimitMs)));
  const after = exactlyOne(await findPayout(deps.database, request.account.id, row.id));
  if (after.status === 'canceled') return { status: 200, body: payoutObject(after), headers };
  const refusal =
    isAnswered || isFinal(after.status)
      ? notCancelable(isUndecided ? { ...after, status: 'pending' } : after)
      : refuse('service_unavailable', {
          hint: 'The cancellation is recorded and may yet take effect: send the request again to learn the result.',
        });
  return { ...refused(refusal), object, headers };
}

/** Shortest pause between two reads of a row by its key: 0.1 s goes unnoticed. */
const pollPauseMs = 100;

/** Longer waits are read less often, so that an account's fifty waits do not read 500 rows a second. */
const pollsAWait = 20;

async function untilFinal(deps: ApiDeps, request: ApiRequest, id: string): Promise<PayoutRow> {
  const startMs = performance.now();
  for (;;) {
    const row = exactlyOne(await findPayout(deps.database, request.account.id, id));
    const waitedMs = performance.now() - startMs;
    if (isFinal(row.status) || waitedMs >= request.waitMs) return row;
    await delay(Math.min(Math.max(pollPauseMs, waitedMs / pollsAWait), request.waitMs - waitedMs));
  }
}

function answerOf(
  request: ApiRequest,
  row: PayoutRow,
  headers: Readonly<Record<string, string>>,
): Answer {
  if (row.refusal === null) {
    return { status: row.status === 'pending' ? 202 : 201, body: payoutObject(row), headers };
  }
  const isKept = request.idempotencyKey !== undefined;
  // Only keys that may read payouts see what is available. Others learn that it is not enough.
  const { code } = row.refusal;
  const isHidden = revealsFunds(code) && !request.scopes.includes('read');
  const balance =
    code === 'limit_exceeded'
      ? { expected: 'at most the amount that the limits of the account still allow' }
      : { expected: 'at most the available balance', hint: 'Add funds first.' };
  const own = code === 'retry_refused' ? redactedFor(request, row.refusal) : row.refusal;
  const refusal = isHidden ? { ...withoutDetail(own), ...balance } : own;
  const shown = isKept ? withAdvice(refusal, row) : refusal;
  return { refusals: [shown], object: { payout: row.id }, headers };
}

function withoutDetail({ detail: _hidden, ...refusal }: Refusal): Refusal {
  return refusal;
}

function notCancelable({ status, batchId, attentionReason }: PayoutRow): Refusal {
  const expected = 'a payout that the bank has not accepted yet';
  const refuseFor = (detail: string) =>
    refuse('payout_not_cancelable', { expected, received: status, detail });
  const isReported = status === 'pending' && hasConflictingReports(attentionReason);
  if (status === 'pending' && batchId !== null && !isReported) {
    return refuseFor(
      'The payout is decided in the order of its batch: cancel the batch, or try again in a moment.',
    );
  }
  return refuseFor(
    isReported || (status === 'processing' && attentionReason !== null)
      ? 'The bank may have accepted the payout: the operator of the service is investigating.'
      : `The payout is ${status}; a payout can be canceled only until the bank accepts it.`,
  );
}

const liveParams = ['source_currency', 'amount', 'fixed_side', 'destination_currency'] as const;

/**
 * Refuses anything but either a quote, or the live rate with its own parameters: never both, never neither.
 *
 * @param named returns a parameter's name in the caller's notation
 */
export function conflictingParams(
  params: Readonly<Record<string, unknown>>,
  named: (name: string) => string = (name) => name,
): readonly Refusal[] {
  if (params['quote'] !== undefined) {
    const expected = 'left out when quote is sent: the quote fixes it';
    const sent = liveParams.filter((name) => params[name] !== undefined);
    return sent.map((name) => refuse('parameters_exclusive', { param: named(name), expected }));
  }
  const expected = 'source_currency and amount for the live rate, or a quote';
  const missing = ['source_currency', 'amount'].filter((name) => params[name] === undefined);
  return missing.map((name) => refuse('parameter_missing', { param: named(name), expected }));
}

/** Returns what to pay to whom: by the terms of the quote, or by the payout's own at the live rate. */
export function orderOf(params: PayoutParams) {
  const isLive = params.quote === undefined;
  return {
    quoteId: params.quote ?? null,
    beneficiaryId: params.beneficiary,
    sourceCurrency: params.source_currency ?? null,
    destinationCurrency: params.destination_currency ?? null,
    fixedSide: isLive ? (params.fixed_side ?? 'source') : null,
    amount: params.amount ?? null,
  };
}

/** Builds the row of a requested payout, which the payout's own workflow drives. */
export function newPayout(id: string, { account }: ApiRequest, params: PayoutParams): NewPayout {
  return {
    ...orderOf(params),
    id,
    accountId: account.id,
    mode: account.mode,
    driver: id,
    reference: params.reference ?? null,
    metadata: params.metadata ?? {},
  };
}
