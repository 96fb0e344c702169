import { listExposures } from '../db/ledger.js';
import { currentRates, midOf } from '../db/rates.js';
import { averageRate, convertFloor, formatRate } from '../domain/fx.js';
import { formatMinor, writtenSum } from '../domain/money.js';
import { printJson, printTable } from './table.js';
import type { Call } from './usage.js';

/** A hundred years: open payouts must be valued even if new rates have stopped coming. */
const anyAgeMs = 100 * 365 * 24 * 60 * 60 * 1000;

const header = ['pair', 'mode', 'payouts', 'promised', 'average rate', 'worth now', 'difference'];

/**
 * Shows the payouts that are accepted but not yet final, by currency pair: the amounts promised, and what
 * the money held for them is worth at the current mid rates. A positive difference is what the service
 * would gain by buying the currency now.
 */
export async function showExposure({ database, isJson }: Call): Promise<void> {
  const rates = await currentRates(database, anyAgeMs);
  const exposures = await listExposures(database);
  if (isJson) return printJson(exposures);
  const rows = exposures.map((open) => {
    const { sourceCurrency: source, destinationCurrency: destination, netMinor, owedMinor } = open;
    const amount = (minor: bigint) => writtenSum(minor, destination);
    const average = averageRate(formatMinor(netMinor, source), formatMinor(owedMinor, destination));
    const mid = midOf(rates, source, destination);
    const now = mid && convertFloor(netMinor, source, destination, mid);
    const worth = now === undefined ? ['no rate'] : [amount(now), amount(now - owedMinor)];
    const pair = `${source} to ${destination}`;
    return [pair, open.mode, `${open.payouts}`, amount(owedMinor), formatRate(average), ...worth];
  });
  if (rows.length === 0) return console.log('No payout is open.');
  printTable([header, ...rows]);
}
