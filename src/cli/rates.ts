import type { Database } from '../db/client.js';
import { decideRate, listWaitingRates, pinProvider } from '../db/rates.js';
import type { Signature } from '../domain/operator.js';
import { ecbProvider } from '../rates/ecb.js';
import { referenceSource } from '../rates/reference.js';
import { UsageError } from './usage.js';

/** A provider by the name that RATE_SOURCE has for it. */
export function rateProviderOf(name: string) {
  if (name === 'ecb') return ecbProvider;
  if (name === 'reference') return referenceSource;
  throw new UsageError('corridor rates use expects reference or ecb.');
}

/** Every rate that waits for a person. */
export async function listRates(database: Database): Promise<void> {
  const waiting = await listWaitingRates(database);
  if (waiting.length === 0) console.log('No rate waits.');
  for (const { id, currency, perEuro, lastPerEuro, asOf } of waiting) {
    console.log(`${id}  ${currency}  ${perEuro}, was ${lastPerEuro}  as of ${asOf.toISOString()}`);
  }
}

/** Takes rates of this provider alone from now on. */
export async function useProvider(database: Database, name: string, by: Signature): Promise<void> {
  await pinProvider(database, rateProviderOf(name), by);
  console.log(`in use: ${name}. Its rates come when workers start with RATE_SOURCE=${name}.`);
}

/** Accepts or rejects a rate that waits. */
export async function decideWaitingRate(
  database: Database,
  id: string,
  outcome: 'accepted' | 'rejected',
  by: Signature,
): Promise<void> {
  const isDecided = await decideRate(database, id, outcome, by);
  if (!isDecided) throw new UsageError(`No rate waits as ${id}; corridor rates list has all.`);
  console.log(`${outcome}: rate ${id}`);
}
