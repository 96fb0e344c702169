// Creates the rows that the API would have written for a request, as a start for the two other ways.
import { newId } from '../../dist/src/db/id.js';
import { amountMinor } from './customer.mjs';

/**
 * Inserts pending payouts in one statement, each driven by the workflow with its own ID. The sweep skips
 * them, because only the measured way may start them.
 */
export async function insertPending(sql, { accountId, beneficiaryId }, count) {
  const ids = Array.from({ length: count }, () => newId('payout'));
  await sql`
    insert into payouts (id, account_id, mode, driver, beneficiary_id, source_currency,
      destination_currency, fixed_side, amount, reference, wake_at)
    select t.id, ${accountId}, 'test', t.id, ${beneficiaryId}, 'USD', 'EUR', 'source',
           ${amountMinor}, 'Invoice ' || t.number, now() + interval '1 hour'
      from unnest(${ids}::text[]) with ordinality as t (id, number)`;
  return ids;
}
