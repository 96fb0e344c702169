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
/** Reads the objects that payouts reference by ID. Returns a function that finds the one of a payout. */
type Reader = (
  from: Source,
  accountId: string,
  payouts: readonly PayoutRow[],
) => Promise<(payout: PayoutRow) => JsonObject | undefined>;

/**
 * Renders a beneficiary for its account. Throws for an erased one, which must be hidden like a deleted one.
 */
export function shownBeneficiary(keyring: Keyring, row: BeneficiaryRow) {
  const details = openDetails(keyring, row);
  if (details === undefined) throw new Error(`${row.id} was erased.`);
  return beneficiaryObject(row, details);
}

/** Builds a reader for the objects that one ID column of payouts references. */
function byId<Row>(
  idOf: (payout: PayoutRow) => string | null,
  find: (sql: Sql, accountId: string, ids: readonly string[]) => Promise<readonly Row[]>,
  render: (row: Row) => JsonObject & { readonly id: string },
): Reader {
  return async ({ sql }, accountId, payouts) => {
    const ids = [...new Set(payouts.flatMap((payout) => idOf(payout) ?? []))];
    const rows = ids.length === 0 ? [] : await find(sql, accountId, ids);
    const objects = new Map(rows.map(render).map((object) => [object.id, object]));
    return (payout) => objects.get(idOf(payout) ?? '');
  };
}

/**
 * A beneficiary is shown as it was when the payout was accepted. A batch comes without counts: only its own
 * route counts its items.
 */
const readers: { readonly [kind in Expandable]: Reader } = {
  beneficiary: async ({ sql, keyring }, accountId, payouts) => {
    const ids = payouts.map(({ id }) => id);
    const rows = await beneficiariesAsPaid(sql, accountId, ids);
    const readable = rows.filter(({ sealed }) => sealed !== null);
    const shown = new Map(readable.map((row) => [row.payoutId, shownBeneficiary(keyring, row)]));
    return ({ id }) => shown.get(id);
  },
  quote: byId(({ quoteId }) => quoteId, findQuotes, quoteObject),
  batch: byId(({ batchId }) => batchId, findBatches, uncountedBatchObject),
};

/**
 * Renders payouts, with the IDs of the requested kinds replaced by the objects that they reference. Runs one
 * query per kind for all payouts. An ID that references no object of the account stays an ID.
 */
export async function expandPayouts(
  from: Source,
  accountId: string,
  rows: readonly PayoutRow[],
  expand: readonly Expandable[],
): Promise<readonly JsonObject[]> {
  if (rows.length === 0) return [];
  const read = async (kind: Expandable) => {
    return { kind, objectOf: await readers[kind](from, accountId, rows) };
  };
  const kinds = await Promise.all([...new Set(expand)].map(read));
  return rows.map((row) => {
    const payout = payoutObject(row);
    const named = kinds.map(({ kind, objectOf }) => [kind, objectOf(row) ?? payout[kind]]);
    return { ...payout, ...Object.fromEntries(named) };
  });
}
