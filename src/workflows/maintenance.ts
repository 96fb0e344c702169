import { comparison, maintenance, sweeper } from './proxies.js';

/** Wakes workflows of rows that are overdue. Started every five seconds by its schedule. */
export async function sweep(): Promise<void> {
  await sweeper.sweep();
}

/** Deletes rows that are kept for 30 days: most idempotency keys, deliveries, unused quotes, probes. */
export async function retention(): Promise<number> {
  return maintenance.purge();
}

/** Reads the banks' statements and counts what differs from the ledger. */
export async function statement(): Promise<number> {
  return comparison.readStatements();
}

/** Compares the customers' balances with their postings; returns how many differ. */
export async function balances(): Promise<number> {
  return comparison.compareBalances();
}

/** Reads the rate source into the table from which quotes are priced. */
export async function refreshRates(): Promise<void> {
  await maintenance.refreshRates();
}
