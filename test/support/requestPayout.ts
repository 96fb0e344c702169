import { insertBeneficiary } from '../../src/db/beneficiaries.js';
import { type Database, transaction } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { findPayout, insertPayout, type PayoutRow } from '../../src/db/payouts.js';
import { insertQuote } from '../../src/db/quotes.js';
import { currentRates, midOf, originOf } from '../../src/db/rates.js';
import { price } from '../../src/domain/quote.js';
import { isRefusal } from '../../src/domain/refusal.js';

/** Whoever looks for personal data where none may be looks for these. */
export const beneficiary = {
  type: 'individual',
  name: 'Ada Lovelace',
  country: 'DE',
  currency: 'EUR',
  iban: 'DE89370400440532013000',
} as const;

const asked = {
  sourceCurrency: 'USD',
  destinationCurrency: 'EUR',
  amount: 125_000n,
  fixedSide: 'source',
} as const;

/** Longer than any test: the reference rates are as good as new. */
export const rateMaximumAgeMs = 24 * 60 * 60 * 1000;

/**
 * Records a payout of 1,250.00 USD to a German account as the API does, with a quote and a
 * beneficiary of its own. It is `pending`, and nobody has been woken.
 */
export async function requestPayout(database: Database, accountId: string): Promise<PayoutRow> {
  const rates = await currentRates(database, rateMaximumAgeMs);
  const mid = midOf(rates, asked.sourceCurrency, asked.destinationCurrency);
  const priced = price({ ...asked, mid });
  if (isRefusal(priced)) throw new Error(`There is no price: ${priced.code}`);
  const origin = originOf(rates, asked.sourceCurrency, asked.destinationCurrency);
  const id = newId('payout');
  await transaction(database, async (sql) => {
    const quote = { id: newId('quote'), accountId, ...asked, price: priced, origin };
    const details = { id: newId('beneficiary'), accountId, details: beneficiary };
    await insertQuote(sql, quote);
    await insertBeneficiary(sql, details);
    await insertPayout(sql, {
      id,
      accountId,
      mode: 'test',
      driver: id,
      quoteId: quote.id,
      beneficiaryId: details.id,
      sourceCurrency: null,
      destinationCurrency: null,
      fixedSide: null,
      amount: null,
      reference: null,
      metadata: {},
    });
  });
  return payoutOf(database, accountId, id);
}

/** What a payout of USD to a German account at the live rate is, without a quote that may expire. */
export const livePayout = {
  mode: 'test',
  quoteId: null,
  sourceCurrency: asked.sourceCurrency,
  destinationCurrency: asked.destinationCurrency,
  fixedSide: asked.fixedSide,
  reference: null,
  metadata: {},
} as const;

/** The row as it stands. */
export async function payoutOf(
  database: Database,
  accountId: string,
  id: string,
): Promise<PayoutRow> {
  const row = await findPayout(database, accountId, id);
  if (row === undefined) throw new Error(`There is no payout ${id}.`);
  return row;
}
