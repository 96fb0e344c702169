import { insertBatch } from '../../src/db/batches.js';
import { insertBeneficiary } from '../../src/db/beneficiaries.js';
import type { Sql } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { currentRates } from '../../src/db/rates.js';
import { type BatchMode, chunkDriver, chunkNumberOf } from '../../src/domain/batch.js';
import { beneficiary, rateMaximumAgeMs } from './requestPayout.js';

/**
 * Records a batch as the API does: so many times 10.00 USD to one German account. Nobody has
 * been woken.
 */
export async function requestBatch(
  sql: Sql,
  accountId: string,
  options: { readonly count: number; readonly mode?: BatchMode; readonly id?: string },
): Promise<string> {
  const { count, mode = 'best_effort', id = newId('batch') } = options;
  const beneficiaryId = newId('beneficiary');
  await insertBeneficiary(sql, { id: beneficiaryId, accountId, details: beneficiary });
  await insertBatch(sql, {
    id,
    accountId,
    mode,
    rates: await currentRates(sql, rateMaximumAgeMs),
    items: Array.from({ length: count }, (_, index) => ({
      index,
      refusal: null,
      payout: {
        id: newId('payout'),
        accountId,
        mode: 'test',
        driver: chunkDriver({ batchId: id, number: chunkNumberOf(index) }),
        quoteId: null,
        beneficiaryId,
        sourceCurrency: 'USD',
        destinationCurrency: 'EUR',
        fixedSide: 'source',
        amount: 1_000n,
        reference: `Salary ${index}`,
        metadata: {},
      },
    })),
  });
  return id;
}
