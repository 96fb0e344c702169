import type { Database } from '../db/client.js';
import { listBreaks, movementTotals } from '../db/statements.js';
import { formatMinor } from '../domain/money.js';

/** More than this in one list is a broken interface, not so many breaks. */
const listLimit = 1_000;

/**
 * Shows what the bank's statements and the ledger say, a currency and item by item, as far
 * as the worker has read the statements. True when there is no break.
 */
export async function reconcile(database: Database, now: Date): Promise<boolean> {
  for (const { currency, direction, bankMinor, ledgerMinor } of await movementTotals(database)) {
    const bank = formatMinor(bankMinor, currency);
    const ledger = formatMinor(ledgerMinor, currency);
    console.log(`${currency} ${direction}s  bank ${bank}  ledger ${ledger}`);
  }
  const breaks = await listBreaks(database, listLimit);
  for (const item of breaks) {
    const hours = Math.floor((now.getTime() - item.since.getTime()) / 3_600_000);
    const bank = amount(item.bankMinor, item.bankCurrency);
    const ledger = amount(item.ledgerMinor, item.ledgerCurrency);
    console.log(`${item.payoutId}  ${item.direction} ${item.kind}, for ${hours} h`);
    console.log(`  bank ${bank}, ledger ${ledger}`);
  }
  console.log(breaks.length === 0 ? 'No breaks.' : `${breaks.length} breaks.`);
  return breaks.length === 0;
}

function amount(minor: bigint | null, currency: string | null): string {
  return minor === null || currency === null
    ? 'nothing'
    : `${formatMinor(minor, currency)} ${currency}`;
}
