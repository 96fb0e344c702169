import { decideRate, listWaitingRates, pinProvider } from '../db/rates.js';
import { ecbProvider } from '../rates/ecb.js';
import { referenceSource } from '../rates/reference.js';
import { tableProvider } from '../rates/table.js';
import { printRows } from './table.js';
import { type Call, Refused, requiredId, signatureOf, UsageError } from './usage.js';

/** Returns a rate provider by its name in RATE_SOURCE. */
export function rateProviderOf(name: string) {
  if (name === 'ecb') return ecbProvider;
  if (name === 'reference') return referenceSource;
  if (name === 'table') return tableProvider;
  throw new UsageError('corridor rates use expects reference, ecb or table.');
}

/** Lists the rates that wait for an operator's decision. */
export async function listRates(call: Call): Promise<void> {
  const rates = await listWaitingRates(call.database);
  printRows(call, rates, 'No rate is waiting for a decision.', (rate) => {
    const { id, currency, perEuro, lastPerEuro, asOf } = rate;
    return `${id}  ${currency}  ${perEuro}, was ${lastPerEuro}  as of ${asOf.toISOString()}`;
  });
}

/** Pins the rate provider: from now on only its rates are accepted. */
export async function useProvider(call: Call): Promise<void> {
  const { database, id: name } = call;
  await pinProvider(database, rateProviderOf(name), signatureOf(call));
  console.log(`in use: ${name}. Its rates arrive once workers start with RATE_SOURCE=${name}.`);
}

/** Accepts or rejects a waiting rate. */
export async function decideWaitingRate(
  call: Call,
  outcome: 'accepted' | 'rejected',
): Promise<void> {
  const id = requiredId('rate', call);
  const isDecided = await decideRate(call.database, id, outcome, signatureOf(call));
  if (!isDecided) throw new Refused(`No rate ${id} is waiting. See corridor rates list.`);
  console.log(`${outcome}: rate ${id}`);
}
