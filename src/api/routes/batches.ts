import {
  batchObject,
  canceledBatchObject,
  uncountedBatchObject,
} from '../../contract/batchObjects.js';
import { batchItemListParams, batchListParams } from '../../contract/listParams.js';
import { payoutObject } from '../../contract/objects.js';
import { type BatchParams, batchParams } from '../../contract/params.js';
import {
  type BatchRow,
  cancelBatch,
  countItems,
  findBatch,
  indexOfItem,
  insertBatch,
  listBatches,
  listItems,
  statusesOfItems,
} from '../../db/batches.js';
import { exactlyOne } from '../../db/client.js';
import { newId } from '../../db/id.js';
import { findKeys } from '../../db/idempotency.js';
import { toPage } from '../../db/page.js';
import { currentRates } from '../../db/rates.js';
import { isRefusal, refuse } from '../../domain/refusal.js';
import { cancelBatchItems, startBatch, tryTemporal } from '../../temporal/workflowCalls.js';
import { scopeMissing } from '../auth.js';
import { bindRequest, recordOnce } from '../idempotency.js';
import { byIdIn, listRoute } from '../listRoute.js';
import {
  type Answer,
  type ApiDeps,
  type ApiRequest,
  notFound,
  type Refused,
  type Route,
  refused,
  route,
} from '../route.js';
import { bindItems, keyedItems } from './batchItems.js';
import { previewBatch } from './batchPreview.js';
import { validateBatch } from './batchShape.js';

/** Payouts per item of the rate limit: counting 100 takes about as long as validating one. */
const countedPerItem = 100;

/**
 * Payouts per item of the rate limit: canceling ten takes about as long as validating one. A batch that was
 * just sent leaves enough of the quota to cancel it.
 */
const canceledPerItem = 10;

/** Timeout of a cancellation. Canceling 10,000 items that are not submitted takes a second or two. */
const cancelLimitMs = 10_000;

export const batchRoutes: readonly Route[] = [
  route({
    method: 'post',
    path: '/v1/batches',
    scope: 'payouts:create',
    acceptsLineFormats: true,
    operationId: 'createBatch',
    summary: 'Create a batch of up to 10,000 payouts.',
    params: batchParams,
    examples: {
      'two payouts': {
        payouts: [
          { beneficiary: 'bnf_01ky', source_currency: 'USD', amount: 5_000 },
          { beneficiary: 'bnf_01ky', source_currency: 'EUR', amount: 5_000, reference: 'July' },
        ],
      },
    },
    answers: { 200: 'batch_preview', 202: 'batch' },
    refusals: ['parameters_exclusive'],
    read: async ({ account, decoded, idempotencyKey: key }, { database }) => {
      // An earlier release may have stored this batch although an item has its key: a replay finds it.
      const isUsed = key !== undefined && (await findKeys(database, account.id, [key])).length > 0;
      return validateBatch(decoded, isUsed ? undefined : key);
    },
    handle: createBatch,
  }),
  listRoute({
    path: '/v1/batches',
    scope: 'read',
    operationId: 'listBatches',
    summary: 'List batches, without counts of their payouts.',
    params: batchListParams,
    answers: { 200: 'batch_list' },
    find: byIdIn('batches'),
    query: listBatches,
    render: uncountedBatchObject,
  }),
  {
    method: 'get',
    path: '/v1/batches/:id',
    scope: 'read',
    operationId: 'readBatch',
    summary: 'Retrieve a batch and its progress.',
    answers: { 200: 'batch' },
    handle: async ({ database }, request) => {
      const batch = await findBatch(database, request.account.id, request.id);
      if (batch === undefined) return refused(notFound(request));
      const tooHeavy = request.takeItems(Math.floor(batch.total / countedPerItem));
      if (tooHeavy !== undefined) return refused(tooHeavy);
      return { status: 200, body: batchObject(batch, await countItems(database, batch.id)) };
    },
  },
  listRoute({
    path: '/v1/batches/:id/payouts',
    scope: 'read',
    operationId: 'listBatchPayouts',
    summary: 'List the payouts of a batch, in the order of the request.',
    params: batchItemListParams,
    answers: { 200: 'payout_list' },
    owner: async (sql, accountId, id) => (await findBatch(sql, accountId, id))?.id,
    find: indexOfItem,
    found: 'the id of a payout of this batch',
    query: async (sql, batchId, { limit, from, toward }, { status = null }) => {
      // One more row than requested shows whether there are more.
      const next = { after: from ?? -1, limit: limit + 1, status };
      return toPage({ limit, toward, from: null }, await listItems(sql, batchId, next));
    },
    render: payoutObject,
  }),
  {
    method: 'post',
    path: '/v1/batches/:id/cancel',
    scope: 'write',
    operationId: 'cancelBatch',
    summary: 'Cancel the payouts of a batch that are not yet submitted to the rail.',
    answers: { 200: 'canceled_batch' },
    refusals: ['batch_not_cancelable'],
    handle: cancel,
  },
];

/**
 * Records a batch with all of its items or none, and has its workflow process them. The shape of every item
 * is validated before anything is stored. The outcome is decided item by item, or for all items together.
 */
async function createBatch(
  deps: ApiDeps,
  request: ApiRequest,
  params: BatchParams,
): Promise<Answer> {
  if (params.validate_only) {
    // Which items are accepted reveals the balance to the cent.
    if (!request.scopes.includes('read')) return scopeMissing(request.scopes, ['read']);
    return { status: 200, body: await previewBatch(deps, request, params) };
  }
  const { payouts, mode } = params;
  const id = newId('batch');
  const { id: accountId, mode: accountMode } = request.account;
  const keyed = await keyedItems(deps, request, payouts);
  const row = { objectId: id, rowCount: keyed.length };
  const bound = await recordOnce(deps, request, row, async (sql) => {
    const rates = await currentRates(sql, deps.rateMaximumAgeMs[accountMode]);
    const items = await bindItems(sql, request, { batchId: id, mode }, keyed);
    await insertBatch(sql, { id, accountId, mode, rates, items });
    return undefined;
  });
  if (isRefusal(bound)) return refused(bound);
  const object = { batch: bound.objectId };
  request.name(object);
  const batch = exactlyOne(await findBatch(deps.database, accountId, bound.objectId));
  if (batch.status === 'processing') {
    await tryTemporal(deps, object, () => startBatch(deps.temporal, batch.id));
  }
  const body = batchObject(batch, await countItems(deps.database, batch.id));
  return { status: 202, body, headers: bound.headers };
}

/** Cancels the payouts that are not yet submitted to the rail. Idempotent: canceling again succeeds. */
async function cancel(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const { database } = deps;
  const batch = await findBatch(database, request.account.id, request.id);
  if (batch === undefined) return refused(notFound(request));
  const tooHeavy = request.takeItems(Math.floor(batch.total / canceledPerItem));
  if (tooHeavy !== undefined) return refused(tooHeavy);
  const bound = await deps.writes(request.account.id, async () => {
    const binding = await bindRequest(database, deps, request, { objectId: batch.id });
    if (isRefusal(binding) || batch.status === 'completed') return binding;
    // From here on nothing more is submitted to the rail, even if this request fails.
    await cancelBatch(database, batch.id);
    return binding;
  });
  if (isRefusal(bound)) return refused(bound);
  const { headers } = bound;
  if (batch.status === 'completed') return { ...notCancelable(batch), headers };
  const object = { batch: batch.id };
  const cancelItems = () => cancelBatchItems(deps.temporal, batch.id, cancelLimitMs);
  if (batch.status !== 'canceled' && !(await tryTemporal(deps, object, cancelItems))) {
    const hint =
      'Nothing more is sent to the bank. Cancel again to end the items at once; otherwise they end by themselves, usually within 15 minutes.';
    return { ...refused(refuse('service_unavailable', { hint })), object, headers };
  }
  const after = exactlyOne(await findBatch(database, request.account.id, batch.id));
  // Its last payout may have become final before anything could be canceled.
  if (after.status === 'completed') return { ...notCancelable(after), headers };
  const [counts, items] = await Promise.all([
    countItems(database, batch.id),
    statusesOfItems(database, batch.id),
  ]);
  return { status: 200, body: canceledBatchObject(after, counts, items), headers };
}

function notCancelable({ id, status }: BatchRow): Refused {
  const expected = 'a batch that is processing';
  const refusal = refuse('batch_not_cancelable', { expected, received: status });
  return { ...refused(refusal), object: { batch: id } };
}
