import type { BatchItemParams } from '../../contract/params.js';
import type { NewItem } from '../../db/batches.js';
import type { Sql } from '../../db/client.js';
import { newId } from '../../db/id.js';
import { bindKeys, type KeyBinding } from '../../db/idempotency.js';
import { statusesOf } from '../../db/payouts.js';
import { type BatchMode, chunkDriver, chunkNumberOf } from '../../domain/batch.js';
import { endedUnpaid } from '../../domain/payout.js';
import { type Refusal, refuse } from '../../domain/refusal.js';
import { isList, isObject, paramInside, paramName } from '../decoded.js';
import { differenceOf, fingerprintsOf } from '../idempotency.js';
import type { ApiDeps, ApiRequest } from '../route.js';
import { createPace } from '../slices.js';
import { newPayout } from './payouts.js';

/** An item with a key counts as the same request as a single payout with that key. */
const itemRoute = 'POST /v1/payouts';

/** An item of a request, with its own key if it has one. */
export type KeyedItem = {
  readonly index: number;
  readonly params: BatchItemParams;
  readonly payoutId: string;
  readonly key: Pick<KeyBinding, 'key' | 'fingerprints'> | undefined;
};

/** Returns the items of a batch, with the fingerprints of those that have their own keys. */
export async function keyedItems(
  deps: ApiDeps,
  request: ApiRequest,
  items: readonly BatchItemParams[],
): Promise<readonly KeyedItem[]> {
  const sent = request.decoded['payouts'];
  const keyed: KeyedItem[] = [];
  const pace = createPace();
  for (const [index, params] of items.entries()) {
    const decoded = (isList(sent) ? sent[index] : null) ?? null;
    const payoutId = newId('payout');
    if (params.idempotency_key !== undefined && isObject(decoded)) {
      const { idempotency_key: _, ...asked } = decoded;
      const fingerprints = await fingerprintsOf(asked, deps.fingerprintSecret);
      keyed.push({ index, params, payoutId, key: { key: params.idempotency_key, fingerprints } });
    } else keyed.push({ index, params, payoutId, key: undefined });
    await pace();
  }
  return keyed;
}

/**
 * Binds the items' own keys and returns the items of the batch. An item whose key has already created a
 * payout refers to that payout if its parameters are the same, and will be refused otherwise.
 */
export async function bindItems(
  sql: Sql,
  request: ApiRequest,
  { batchId, mode }: { readonly batchId: string; readonly mode: BatchMode },
  items: readonly KeyedItem[],
): Promise<readonly NewItem[]> {
  const bindings = items.flatMap(({ key, payoutId }) =>
    key === undefined ? [] : [{ ...key, route: itemRoute, objectId: payoutId, refusal: null }],
  );
  const before = await bindKeys(sql, request.account.id, bindings, null);
  const earlierOf = await readEarlier(sql, mode, before);
  return items.map((item) => {
    const { index, params, payoutId } = item;
    const earlier = earlierOf(item);
    if (earlier !== undefined && 'payoutId' in earlier) {
      return { index, refersTo: earlier.payoutId };
    }
    const driver = chunkDriver({ batchId, number: chunkNumberOf(index) });
    const payout = { ...newPayout(payoutId, request, params), driver };
    return { index, payout, refusal: earlier?.refusal ?? null };
  });
}

/**
 * Returns what an item's key has already created: the payout that the item refers to, or why it cannot. A batch
 * that is paid as a whole cannot refer to a payout that has ended unpaid by then.
 */
export async function readEarlier(sql: Sql, mode: BatchMode, before: readonly KeyBinding[]) {
  const bindingOf = new Map(before.map((binding) => [binding.key, binding]));
  const ids = mode === 'all_or_nothing' ? before.map(({ objectId }) => objectId) : [];
  const statuses = ids.length === 0 ? [] : await statusesOf(sql, ids);
  const unpaid = new Set(statuses.flatMap(({ id, status }) => (endedUnpaid(status) ? [id] : [])));
  return ({
    index,
    key,
  }: KeyedItem): { readonly payoutId: string } | { readonly refusal: Refusal } | undefined => {
    const first = key === undefined ? undefined : bindingOf.get(key.key);
    if (key === undefined || first === undefined) return undefined;
    const { objectId: payoutId } = first;
    const notPaid = unpaid.has(payoutId)
      ? refuse('idempotency_key_reused', {
          detail: `The payout of this idempotency key, ${payoutId}, was not paid, and a repeat does not pay it. Give the item a new key.`,
        })
      : undefined;
    const fault = differenceOf(first, { ...key, route: itemRoute }) ?? notPaid;
    if (fault === undefined) return { payoutId };
    const param = paramInside(paramName(['payouts', index]), fault.param ?? 'idempotency_key');
    return { refusal: { ...fault, param } };
  };
}
