import { comparison, maintenance, sweeper } from './proxies.js';

/** Wakes what should be moving and does not; started every five seconds by its schedule. */
export async function sweep(): Promise<void> {
  await sweeper.sweep();
}

/** Deletes what is kept for 30 days: most idempotency keys, deliveries, unused quotes, and probes. */
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

/** Reads the rate source into the table that quotes are priced from. */
export async function refreshRates(): Promise<void> {
  await maintenance.refreshRates();
}
