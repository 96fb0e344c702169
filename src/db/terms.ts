import type { Corridor, Terms } from '../domain/corridor.js';
import { bigints, exactlyOne, type Sql, when } from './client.js';
import { type CurrencyRates, originOf, type RateOrigin } from './rates.js';

/** Terms with the time that they hold for; without an account, those of every other one. */
export type TermsRow = Terms & {
  readonly accountId: string | null;
  readonly validFrom: Date;
  readonly validUntil: Date | null;
};

/** Everything that a price is computed from, by its ids. */
export type PriceOrigin = RateOrigin & {
  readonly feeTermsId: bigint;
  /** Null within one currency, where there is no spread. */
  readonly spreadTermsId: bigint | null;
};

/** What the price of a corridor was computed from: without one there is no price. */
export function priceOriginOf(rates: CurrencyRates, corridor: Corridor | undefined): PriceOrigin {
  if (corridor === undefined) throw new Error('A price was computed without a corridor.');
  const { source, destination, feeTermsId, spreadTermsId } = corridor;
  return { ...originOf(rates, source, destination), feeTermsId, spreadTermsId };
}

const columns = (sql: Sql) => sql`
  t.id, t.account_id, t.currency, t.fixed_minor, t.basis_points, t.minimum_minor, t.maximum_minor,
  t.spread_basis_points, lower(t.valid_at) as valid_from, upper(t.valid_at) as valid_until`;

/** The terms of each currency at a moment: the account's own, or everybody's. */
const termsAt = (sql: Sql, accountId: ReturnType<Sql>, at: ReturnType<Sql>) => sql`
  select distinct on (t.currency) ${columns(sql)} from terms t
   where t.owner in ('', ${accountId}) and t.valid_at @> ${at}
   order by t.currency, t.owner desc`;

/** What holds for an account now, and the database's time, to which a price of it belongs. */
export async function currentTerms(
  sql: Sql,
  accountId: string,
  currencies?: readonly string[],
): Promise<{ readonly at: Date; readonly terms: readonly TermsRow[] }> {
  const rows = await sql<(TermsRow & { readonly at: Date })[]>`
    select date_trunc('milliseconds', now()) as at, t.*
      from (${termsAt(sql, sql`${accountId}`, sql`now()`)}) t
     where ${when(sql, currencies, (some) => sql`currency = any (${some})`)}`;
  // Without terms there is no price that could be dated.
  return { at: rows[0]?.at ?? new Date(0), terms: rows };
}

/** What holds for these payouts of one account: now, or for the items of a batch, at its request. */
export async function termsOfPayouts(
  sql: Sql,
  payoutIds: readonly string[],
): Promise<readonly (TermsRow & { readonly batchId: string | null })[]> {
  return sql<(TermsRow & { readonly batchId: string | null })[]>`
    select asked.batch_id, t.*
      from (select distinct p.account_id, p.batch_id, coalesce(b.created_at, now()) as at
              from payouts p left join batches b on b.id = p.batch_id
             where p.id = any (${payoutIds})) asked
     cross join lateral (${termsAt(sql, sql`asked.account_id`, sql`asked.at`)}) t`;
}

/** Terms by their ids. */
export async function findTerms(
  sql: Sql,
  ids: readonly (bigint | null)[],
): Promise<readonly TermsRow[]> {
  return sql<TermsRow[]>`
    select ${columns(sql)} from terms t where t.id = any (${bigints(ids)}::bigint[])`;
}

/** Terms that hold now or later: everybody's, or an account's own. */
export async function listTerms(
  sql: Sql,
  accountId: string | null,
  currency: string | undefined,
): Promise<readonly TermsRow[]> {
  return sql<TermsRow[]>`
    select ${columns(sql)} from terms t
     where t.owner = ${accountId ?? ''} and (upper(t.valid_at) > now() or upper(t.valid_at) is null)
       and ${when(sql, currency, (wanted) => sql`t.currency = ${wanted}`)}
     order by t.currency, t.valid_at`;
}

/**
 * Puts terms in force for a time, in place of those that would hold then: until those that follow,
 * or until `validUntil`. Undefined when others begin at the same moment.
 */
export async function replaceTerms(
  sql: Sql,
  terms: Omit<TermsRow, 'id'>,
): Promise<TermsRow | undefined> {
  const { accountId, currency, validFrom } = terms;
  const owned = sql`owner = ${accountId ?? ''} and currency = ${currency}`;
  await sql`
    update terms set valid_at = tstzrange(lower(valid_at), ${validFrom})
     where ${owned} and valid_at @> ${validFrom}::timestamptz and lower(valid_at) < ${validFrom}`;
  const [row] = await sql<TermsRow[]>`
    insert into terms as t (account_id, currency, fixed_minor, basis_points, minimum_minor,
      maximum_minor, spread_basis_points, valid_at)
    select ${accountId}, ${currency}, ${terms.fixedMinor}, ${terms.basisPoints},
      ${terms.minimumMinor}, ${terms.maximumMinor}, ${terms.spreadBasisPoints},
      tstzrange(${validFrom}, least(${terms.validUntil}::timestamptz, (
        select min(lower(valid_at)) from terms where ${owned} and lower(valid_at) > ${validFrom})))
     where not exists (select from terms where ${owned} and lower(valid_at) = ${validFrom})
    returning ${columns(sql)}`;
  return row;
}

/**
 * What the payouts of the last 30 days that these terms would have been for have paid, and would have
 * paid, in fees. The database gives up on a month that takes longer than a statement may.
 */
export async function lastMonthOn(
  sql: Sql,
  terms: Omit<TermsRow, 'id'>,
): Promise<{ readonly payouts: number; readonly feeMinor: bigint; readonly newFeeMinor: bigint }> {
  const [row] = await sql<{ payouts: number; feeMinor: bigint; newFeeMinor: bigint }[]>`
    select count(*)::int as payouts, coalesce(sum(fee_minor), 0)::bigint as fee_minor,
           coalesce(sum(greatest(${terms.minimumMinor}::bigint, ${terms.fixedMinor}::bigint
             + ceil(source_minor * ${terms.basisPoints}::numeric / 10000))), 0)::bigint as new_fee_minor
      from payouts p
     where p.source_currency = ${terms.currency} and p.requested_at > now() - interval '30 days'
       and p.processing_since is not null
       and case when ${terms.accountId}::text is null
             then exists (select from terms t where t.id = p.fee_terms_id and t.account_id is null)
             else p.account_id = ${terms.accountId} end`;
  return exactlyOne(row);
}
