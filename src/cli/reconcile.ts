import { longTransaction, mostListed } from '../db/client.js';
import { listBalanceBreaks, listExposures, sumPostings } from '../db/ledger.js';
import { listOrphans } from '../db/orphans.js';
import { countBreaks, lastStatements, listBreaks, movementTotals } from '../db/statements.js';
import { statedSum } from '../domain/factEffect.js';
import { isCurrency, writtenMinor } from '../domain/money.js';
import { printJson } from './table.js';
import type { Call } from './usage.js';

/** Timeout of a comparison. An operator is waiting, but a large ledger has to be read in full. */
const comparisonLimitMs = 10 * 60_000;

/**
 * Compares the bank's statements, as far as the worker has read them, with the ledger, by currency and
 * by item. Also shows the sum of all postings, the money held for unsettled payouts, balances that differ
 * from the sum of their postings, and orphaned rows. True if there is no break.
 */
export async function reconcile({ database, isJson }: Call): Promise<boolean> {
  const [statements, movements, sums, breaks, balances, orphans] = await Promise.all([
    lastStatements(database),
    longTransaction(database, comparisonLimitMs, movementTotals),
    longTransaction(database, comparisonLimitMs, sumPostings),
    longTransaction(database, comparisonLimitMs, (sql) => listBreaks(sql, mostListed)),
    longTransaction(database, comparisonLimitMs, listBalanceBreaks),
    longTransaction(database, comparisonLimitMs, listOrphans),
  ]);
  const uneven = sums.filter(({ sumMinor }) => sumMinor !== 0n);
  // Rarely more than listed, so rarely counted: that reads both sides in full once more.
  const breaksTotal =
    breaks.length < mostListed
      ? breaks.length
      : await longTransaction(database, comparisonLimitMs, (sql) => countBreaks(sql, true));
  const count = breaksTotal + uneven.length + balances.length + orphans.length;
  if (isJson) {
    printJson({ statements, movements, sums, breaks, breaksTotal, balances, orphans });
    return count === 0;
  }
  if (statements.length === 0) console.log('No statement is closed, so no payment is compared.');
  for (const { rail, day } of statements)
    console.log(`${rail}: last closed statement is for ${day}`);
  for (const { currency, direction, bankMinor, ledgerMinor } of movements) {
    // The currency code comes from the bank and may not exist.
    const sum = (minor: bigint) => (isCurrency(currency) ? writtenMinor(minor, currency) : minor);
    console.log(`${currency} ${direction}s  bank ${sum(bankMinor)}  ledger ${sum(ledgerMinor)}`);
  }
  for (const { mode, currency: code, sumMinor, postings } of sums) {
    console.log(`${code} postings (${mode})  ${postings}, which sum to ${amount(sumMinor, code)}`);
  }
  for (const open of await listExposures(database)) {
    const { sourceCurrency: source, destinationCurrency: destination, mode, payouts } = open;
    const held = amount(open.heldMinor, source);
    const due = amount(open.owedMinor, destination);
    console.log(`${source} to ${destination}, ${mode}: ${payouts} open, ${held} held, ${due} due`);
  }
  for (const item of breaks) {
    const hours = Math.floor((Date.now() - item.since.getTime()) / 3_600_000);
    const bank = amount(item.bankMinor, item.bankCurrency);
    const ledger = amount(item.ledgerMinor, item.ledgerCurrency);
    console.log(`${item.payoutId}  ${item.direction} ${item.kind}, for ${hours} h`);
    console.log(`  bank ${bank}, ledger ${ledger}`);
  }
  if (breaksTotal > breaks.length)
    console.log(`Only the oldest ${breaks.length} of ${breaksTotal} differences are listed.`);
  for (const { accountId, kind, currency, balanceMinor, postingsMinor } of balances) {
    const balance = amount(balanceMinor, currency);
    const postings = amount(postingsMinor, currency);
    console.log(`${accountId}  ${kind} balance ${balance}, postings ${postings}`);
  }
  for (const { reference, rowId, missingId } of orphans) {
    console.log(`${rowId}  ${reference}: there is no ${missingId}`);
  }
  console.log(count === 0 ? 'No breaks.' : `${count} ${count === 1 ? 'break' : 'breaks'}.`);
  return count === 0;
}

function amount(amountMinor: bigint | null, currency: string | null): string {
  const isNone = amountMinor === null || currency === null;
  return isNone ? 'nothing' : statedSum({ amountMinor, currency });
}
