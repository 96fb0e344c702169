import { formatRate } from '../domain/fx.js';
import { type Price, type PriceInput, quoteLifetimeSeconds } from '../domain/quote.js';
import { oneOf, onlyRow, ownedIn, type Sql, unnest } from './client.js';
import type { AcceptedColumns } from './payouts.js';
import retention from './retention.json' with { type: 'json' };
import type { PriceOrigin } from './terms.js';

export type QuoteRow = AcceptedColumns &
  PriceOrigin &
  PriceInput & {
    readonly id: string;
    readonly accountId: string;
    readonly createdAt: Date;
    readonly expiresAt: Date;
    readonly usedBy: string | null;
    /** By the database's clock. A quote is expired at `expiresAt` itself. */
    readonly expired: boolean;
  };

export type NewQuote = PriceInput &
  Pick<QuoteRow, 'id' | 'accountId' | 'createdAt'> & {
    readonly price: Price;
    readonly origin: PriceOrigin;
  };

/** Stores a quote, valid for its lifetime from the time of its price. */
export async function insertQuote(sql: Sql, quote: NewQuote): Promise<QuoteRow> {
  const { price, origin } = quote;
  return onlyRow(sql<QuoteRow[]>`
    insert into quotes (id, account_id, source_currency, destination_currency, fixed_side, amount,
      source_minor, fee_minor, net_minor, receive_minor, mid_value_minor, rate, mid,
      rate_provider, rate_as_of, source_rate_id, destination_rate_id, fee_terms_id,
      spread_terms_id, created_at, expires_at)
    values (${quote.id}, ${quote.accountId}, ${quote.sourceCurrency},
      ${quote.destinationCurrency}, ${quote.fixedSide}, ${quote.amount},
      ${price.sourceMinor}, ${price.feeMinor}, ${price.netMinor}, ${price.receiveMinor},
      ${price.midValueMinor}, ${formatRate(price.rate)}, ${formatRate(price.mid)},
      ${origin.rateProvider}, ${origin.rateAsOf}, ${origin.sourceRateId}, ${origin.destinationRateId},
      ${origin.feeTermsId}, ${origin.spreadTermsId}, ${quote.createdAt},
      ${quote.createdAt}::timestamptz + make_interval(secs => ${quoteLifetimeSeconds}))
    returning *, false as expired`);
}

/** Finds quotes of an account by their IDs. */
export const findQuotes = ownedIn<QuoteRow>(
  'quotes',
  (sql) => sql`*, expires_at <= now() as expired`,
);

export const findQuote = oneOf(findQuotes);

export type QuoteOfPayout = QuoteRow & { readonly payoutId: string; readonly inTime: boolean };

/**
 * Locks the quotes that these payouts name, in ID order. Leaves out quotes of other accounts.
 * `inTime` compares two times that both come from the database's clock.
 */
export const lockQuotesOf = async (sql: Sql, payoutIds: readonly string[]) => sql<QuoteOfPayout[]>`
  select q.*, q.expires_at <= now() as expired, p.id as payout_id,
         p.requested_at < q.expires_at as in_time
    from payouts p join quotes q on q.id = p.quote_id and q.account_id = p.account_id
   where p.id = any (${payoutIds}) order by q.id for no key update of q`;

/**
 * Marks each quote as used by its payout. `domain/acceptance.ts` has refused those that were used; the trigger
 * `used_once` refuses them too.
 */
export async function markQuotesUsed(
  sql: Sql,
  uses: readonly { readonly quoteId: string; readonly payoutId: string }[],
): Promise<void> {
  if (uses.length === 0) return;
  await sql`
    update quotes q set used_by = t.payout_id
      from ${unnest(sql, uses)`quote_id text, payout_id text`}
     where q.id = t.quote_id`;
}

/** Deletes at most `limit` quotes that expired long ago and were never used. */
export const purgeUnusedQuotes = (sql: Sql, limit: number) => sql`
  delete from quotes where id in (
    select id from quotes where used_by is null
       and expires_at < now() - make_interval(days => ${retention.quotes.days}::int)
     order by expires_at limit ${limit})`;
