import { uncountedBatchObject } from '../contract/batchObjects.js';
import type { Expandable } from '../contract/listParams.js';
import { beneficiaryObject, payoutObject, quoteObject } from '../contract/objects.js';
import type { JsonObject } from '../contract/versions/jsonObject.js';
import { findBatches } from '../db/batches.js';
import { findBeneficiaries } from '../db/beneficiaries.js';
import type { Sql } from '../db/client.js';
import type { PayoutRow } from '../db/payouts.js';
import { findQuotes } from '../db/quotes.js';

/** The objects of each kind that a page of payouts names, by their ids. */
type Expansions = { readonly [kind in Expandable]: ReadonlyMap<string, JsonObject> };

const nothing: ReadonlyMap<string, JsonObject> = new Map();

/**
 * Payouts as objects, with the ids of the asked kinds replaced by what they name: one query a
 * kind for all of them. An id that names nothing of the account stays an id. A batch is not
 * counted here, one payout as many: its own route counts.
 */
export async function expandPayouts(
  sql: Sql,
  accountId: string,
  rows: readonly PayoutRow[],
  expand: readonly Expandable[],
): Promise<(row: PayoutRow) => JsonObject> {
  if (expand.length === 0) return payoutObject;
  const read = async (
    kind: Expandable,
    idOf: (row: PayoutRow) => string | null,
    find: (ids: readonly string[]) => Promise<readonly (JsonObject & { readonly id: string })[]>,
  ): Promise<ReadonlyMap<string, JsonObject>> => {
    const ids = [...new Set(rows.map(idOf).filter((id) => id !== null))];
    if (!expand.includes(kind) || ids.length === 0) return nothing;
    return new Map((await find(ids)).map((object) => [object.id, object]));
  };
  const [beneficiary, quote, batch] = await Promise.all([
    read(
      'beneficiary',
      (row) => row.beneficiaryId,
      async (ids) => (await findBeneficiaries(sql, accountId, ids)).map(beneficiaryObject),
    ),
    read(
      'quote',
      (row) => row.quoteId,
      async (ids) => (await findQuotes(sql, accountId, ids)).map(quoteObject),
    ),
    read(
      'batch',
      (row) => row.batchId,
      async (ids) => (await findBatches(sql, accountId, ids)).map(uncountedBatchObject),
    ),
  ]);
  return (row) => expanded(row, { beneficiary, quote, batch });
}

function expanded(row: PayoutRow, { beneficiary, quote, batch }: Expansions): JsonObject {
  const object = payoutObject(row);
  return {
    ...object,
    beneficiary: beneficiary.get(row.beneficiaryId) ?? object.beneficiary,
    quote: quote.get(row.quoteId ?? '') ?? object.quote,
    batch: batch.get(row.batchId ?? '') ?? object.batch,
  };
}
