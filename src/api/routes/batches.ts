import { batchObject } from '../../contract/objects.js';
import { batchParams, type PayoutParams } from '../../contract/params.js';
import { type BatchRow, countItems, findBatch, insertBatch } from '../../db/batches.js';
import { transaction } from '../../db/client.js';
import { newId } from '../../db/id.js';
import { currentRates } from '../../db/rates.js';
import { startBatch } from '../../temporal/wakePayout.js';
import { bindRequest, mismatch, replayed } from '../idempotency.js';
import {
  type Answer,
  type ApiDeps,
  type ApiRequest,
  notFound,
  type Route,
  refused,
} from '../route.js';
import { validate } from '../validate.js';
import { exclusions, newPayout } from './payouts.js';

export const batchRoutes: readonly Route[] = [
  {
    method: 'post',
    path: '/v1/batches',
    handle: createBatch,
    operationId: 'createBatch',
    summary: 'Send up to 10,000 payouts in one request.',
    params: batchParams,
    examples: {
      'two payouts': {
        payouts: [
          { beneficiary: 'bnf_01ky', source_currency: 'USD', amount: 5_000 },
          { beneficiary: 'bnf_01ky', source_currency: 'EUR', amount: 5_000, reference: 'July' },
        ],
      },
    },
    statuses: [202],
    response: 'batch',
    refusals: ['parameters_exclusive'],
  },
  {
    method: 'get',
    path: '/v1/batches/:id',
    handle: readBatch,
    operationId: 'readBatch',
    summary: 'Read a batch and how far its payouts are.',
    statuses: [200],
    response: 'batch',
  },
];

/** More errors than this in one answer help nobody. */
const maximumErrors = 100;

/**
 * Records a batch with its items, whole or not at all, and has its workflow start them. The
 * shape of every item is judged before anything is stored; what each item comes to is
 * decided item by item.
 */
async function createBatch(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const validated = validate(batchParams, request.decoded);
  if ('refusals' in validated) return validated;
  const misfits = validated.params.payouts
    .flatMap((item, index) => exclusions(item, (name) => `payouts[${index}][${name}]`))
    .slice(0, maximumErrors);
  if (misfits.length > 0) return { refusals: misfits };

  const id = newId('batch');
  const first = await transaction(deps.database, async (sql) => {
    const bound = await bindRequest(sql, deps, request, id, null);
    if (bound === 'bound') {
      const rates = await currentRates(sql, deps.rateMaximumAgeMs);
      await insertBatch(sql, {
        id,
        accountId: request.account.id,
        rates: rates.map(({ currency, perEuro }) => ({ currency, perEuro })),
        items: validated.params.payouts.map((item) => itemOf(request, item)),
      });
    }
    return bound;
  });
  if (first !== 'bound') {
    const different = mismatch(deps, request, first);
    if (different !== undefined) return refused(different);
  }
  const batchId = first === 'bound' ? id : first.objectId;
  const batch = await existingBatch(deps, request.account.id, batchId);
  if (batch.status === 'processing') await start(deps, batchId);
  return {
    status: 202,
    body: batchObject(batch, await countItems(deps.database, batchId)),
    headers: first === 'bound' ? {} : replayed,
  };
}

async function start(deps: ApiDeps, batchId: string): Promise<void> {
  try {
    await deps.temporal.withDeadline(Date.now() + 3_000, () => startBatch(deps.temporal, batchId));
  } catch (error) {
    // The rows are the request: the sweep starts what nobody else does.
    deps.log.warn({ err: error, batch: batchId }, 'the batch was left to the sweep');
  }
}

function itemOf(request: ApiRequest, params: PayoutParams) {
  return newPayout(newId('payout'), request, params);
}

async function readBatch(deps: ApiDeps, request: ApiRequest): Promise<Answer> {
  const batch = await findBatch(deps.database, request.account.id, request.id);
  if (batch === undefined) return refused(notFound(request));
  return { status: 200, body: batchObject(batch, await countItems(deps.database, batch.id)) };
}

async function existingBatch(deps: ApiDeps, accountId: string, id: string): Promise<BatchRow> {
  const batch = await findBatch(deps.database, accountId, id);
  if (batch === undefined) throw new Error(`The batch ${id} of a bound key has vanished.`);
  return batch;
}
