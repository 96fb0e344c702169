import { listArrivals } from '../db/arrivals.js';
import { longTransaction } from '../db/client.js';
import { estimatedArrival } from '../domain/arrival.js';
import { countOf } from './amounts.js';
import { printJson, printTable } from './table.js';
import type { Call } from './usage.js';

const header = ['currency', 'mode', 'state', 'payouts', 'late', 'latest by'];

/** Maximum period, a year: older payouts say little about today's cut-off times. */
const mostDays = 366;

/** Statement timeout. Somebody is waiting, but a year may have millions of payouts, each looked up by ID. */
const limitMs = 5 * 60_000;

/**
 * Compares estimated and actual arrivals, by destination currency and mode. Shows how many payouts settled
 * in the last days and how many are open; how many of each are later than their estimate; and the longest
 * delay. A payout without an estimate is not late.
 */
export async function showArrivals({ database, isJson, flags }: Call): Promise<void> {
  const days = countOf('days', flags['days'] ?? '30', 'a number of days', [1, mostDays]);
  const lines = new Map<string, readonly [number, number, number]>();
  for (const group of await longTransaction(database, limitMs, (sql) => listArrivals(sql, days))) {
    const { sourceCurrency, destinationCurrency, acceptedAt, endedAt, payouts } = group;
    const estimate = estimatedArrival(sourceCurrency, destinationCurrency, acceptedAt) ?? endedAt;
    const lateMs = Math.max(0, endedAt.getTime() - estimate.getTime());
    const line = `${destinationCurrency} ${group.mode} ${group.isOpen ? 'open' : 'settled'}`;
    const [all, late, mostMs] = lines.get(line) ?? [0, 0, 0];
    lines.set(line, [all + payouts, lateMs > 0 ? late + payouts : late, Math.max(mostMs, lateMs)]);
  }
  if (isJson) return printJson(Object.fromEntries(lines));
  if (lines.size === 0) return console.log('No payout was settled, and none is open.');
  const rows = Array.from(lines, ([line, [all, late, mostMs]]) => {
    const latest = mostMs > 0 ? `${Math.ceil(mostMs / 3_600_000)} h` : '';
    return [...line.split(' '), `${all}`, `${late}`, latest];
  });
  printTable([header, ...rows]);
}
