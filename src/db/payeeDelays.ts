import type { Fragment } from 'postgres';
import type { PayeeDelay } from '../domain/sendingLimits.js';
import type { Sql } from './client.js';

/**
 * Returns the rules of an account for payouts to new beneficiary details, at most one per currency. They are
 * applied by `refuseNewPayee` in domain/sendingLimits.ts.
 */
export const findPayeeDelays = async (sql: Sql, accountId: string | Fragment) => sql<PayeeDelay[]>`
  select currency, above_minor, hours from payee_delays
   where account_id = ${accountId} order by currency`;

/** Sets the rule of a currency. */
export async function setPayeeDelay(
  sql: Sql,
  accountId: string,
  { currency, aboveMinor, hours }: PayeeDelay,
): Promise<void> {
  await sql`
    insert into payee_delays values (${accountId}, ${currency}, ${aboveMinor}, ${hours})
    on conflict (account_id, currency) do update
       set (above_minor, hours) = (excluded.above_minor, excluded.hours)`;
}

/** Deletes the rule of a currency, if there is one. */
export async function endPayeeDelay(sql: Sql, accountId: string, currency: string): Promise<void> {
  await sql`delete from payee_delays where account_id = ${accountId} and currency = ${currency}`;
}
