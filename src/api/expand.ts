import { uncountedBatchObject } from '../contract/batchObjects.js';
import type { Expandable } from '../contract/listParams.js';
import { beneficiaryObject, payoutObject, quoteObject } from '../contract/objects.js';
import type { JsonObject } from '../contract/versions/index.js';
import { findBatches } from '../db/batches.js';
import { type BeneficiaryRow, beneficiariesAsPaid } from '../db/beneficiaries.js';
import type { Sql } from '../db/client.js';
import type { PayoutRow } from '../db/payouts.js';
import { type Keyring, openDetails } from '../db/personalData.js';
import { findQuotes } from '../db/quotes.js';

type Source = { readonly sql: Sql; readonly keyring: Keyring };
/** The objects that payouts name, by the ids of the payouts. */
type Reader = (
  from: Source,
  accountId: string,
  payouts: readonly PayoutRow[],
) => Promise<ReadonlyMap<string, JsonObject>>;

/** A beneficiary as its account sees it. One that was erased is hidden, as a deleted one is. */
export function shownBeneficiary(keyring: Keyring, row: BeneficiaryRow) {
  const details = openDetails(keyring, row);
  if (details === undefined) throw new Error(`${row.id} was erased.`);
  return beneficiaryObject(row, details);
}

/** Reads what payouts name by an id. */
function byId<Row>(
  idOf: (payout: PayoutRow) => string | null,
  find: (sql: Sql, accountId: string, ids: readonly string[]) => Promise<readonly Row[]>,
  render: (row: Row) => JsonObject & { readonly id: string },
): Reader {
  return async ({ sql }, accountId, payouts) => {
    const ids = [...new Set(payouts.flatMap((payout) => idOf(payout) ?? []))];
    const rows = ids.length === 0 ? [] : await find(sql, accountId, ids);
    const objects = new Map(rows.map(render).map((object) => [object.id, object]));
    return new Map(
      payouts.flatMap((payout) => {
        const object = objects.get(idOf(payout) ?? '');
        return object === undefined ? [] : [[payout.id, object] as const];
      }),
    );
  };
}

/** A beneficiary is shown as it was when the payout was accepted. A batch is not counted here: its own route counts. */
const readers: { readonly [kind in Expandable]: Reader } = {
  beneficiary: async ({ sql, keyring }, accountId, payouts) => {
    const ids = payouts.map(({ id }) => id);
    const rows = await beneficiariesAsPaid(sql, accountId, ids);
    const readable = rows.filter(({ sealed }) => sealed !== null);
    return new Map(readable.map((row) => [row.payoutId, shownBeneficiary(keyring, row)]));
  },
  quote: byId(({ quoteId }) => quoteId, findQuotes, quoteObject),
  batch: byId(({ batchId }) => batchId, findBatches, uncountedBatchObject),
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
  if (rows.length === 0) return [];
  const read = async (kind: Expandable) => {
    return { kind, objects: await readers[kind](from, accountId, rows) };
  };
  const kinds = await Promise.all([...new Set(expand)].map(read));
  return rows.map((row) => {
    const payout = payoutObject(row);
    const named = kinds.map(({ kind, objects }) => [kind, objects.get(row.id) ?? payout[kind]]);
    return { ...payout, ...Object.fromEntries(named) };
  });
}
