// What the two other ways start from: the rows that the API would have made of a request.
import { newId } from '../../dist/src/db/id.js';
import { amountMinor } from './customer.mjs';

/**
 * Records pending payouts, each driven by the workflow of its own id, in one statement. The
 * sweep leaves them alone: nothing but the way that is measured may start them.
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
