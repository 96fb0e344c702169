import { uncountedBatchObject } from '../contract/batchObjects.js';
import type { Expandable } from '../contract/listParams.js';
import { beneficiaryObject, payoutObject, quoteObject } from '../contract/objects.js';
import type { JsonObject } from '../contract/versions/index.js';
import { findBatches } from '../db/batches.js';
import { type BeneficiaryRow, findBeneficiaries } from '../db/beneficiaries.js';
import type { Sql } from '../db/client.js';
import type { PayoutRow } from '../db/payouts.js';
import { type Keyring, openDetails } from '../db/personalData.js';
import { findQuotes } from '../db/quotes.js';

type Named = JsonObject & { readonly id: string };
type Source = { readonly sql: Sql; readonly keyring: Keyring };
type Reader = (
  from: Source,
  accountId: string,
  ids: readonly string[],
) => Promise<readonly Named[]>;

/** A beneficiary as its account sees it. One that was erased is hidden, as a deleted one is. */
export function shownBeneficiary(keyring: Keyring, row: BeneficiaryRow) {
  const details = openDetails(keyring, row);
  if (details === undefined) throw new Error(`${row.id} was erased.`);
  return beneficiaryObject(row, details);
}

/** Reads the objects of each kind. A batch is not counted here: its own route counts. */
const readers: { readonly [kind in Expandable]: Reader } = {
  beneficiary: async ({ sql, keyring }, ...asked) =>
    (await findBeneficiaries(sql, ...asked))
      .filter(({ sealed }) => sealed !== null)
      .map((row) => shownBeneficiary(keyring, row)),
  quote: async ({ sql }, ...asked) => (await findQuotes(sql, ...asked)).map(quoteObject),
  batch: async ({ sql }, ...asked) => (await findBatches(sql, ...asked)).map(uncountedBatchObject),
};

/**
 * Payouts as objects, with the ids of the asked kinds replaced by what they name: one query a
 * kind for all of them. An id that names nothing of the account stays an id.
 */
export async function expandPayouts(
  from: Source,
  accountId: string,
  rows: readonly PayoutRow[],
  expand: readonly Expandable[],
): Promise<readonly JsonObject[]> {
  const payouts = rows.map(payoutObject);
  const read = async (kind: Expandable) => {
    const ids = [...new Set(payouts.flatMap((payout) => payout[kind] ?? []))];
    const objects = ids.length === 0 ? [] : await readers[kind](from, accountId, ids);
    return { kind, objects: new Map(objects.map((object) => [object.id, object])) };
  };
  const kinds = await Promise.all([...new Set(expand)].map(read));
  return payouts.map((payout) => {
    const named = kinds.map(({ kind, objects }) => {
      const id = payout[kind];
      return [kind, objects.get(id ?? '') ?? id] as const;
    });
    return { ...payout, ...Object.fromEntries(named) };
  });
}
