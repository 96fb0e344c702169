import type { Fragment } from 'postgres';
import type { Corridor, Opening, Terms } from '../domain/corridor.js';
import type { Mode } from './accounts.js';
import { bigints, exactlyOne, type Sql, when } from './client.js';
import { currentOpenings } from './corridorOpenings.js';
import { type CurrencyRates, originOf, type RateOrigin } from './rates.js';

/** Terms with their validity period. Without an account, they apply to all accounts without own terms. */
export type TermsRow = Terms & {
  readonly accountId: string | null;
  readonly validFrom: Date;
  readonly validUntil: Date | null;
};

/** IDs of everything from which a price is computed. */
export type PriceOrigin = RateOrigin & {
  readonly feeTermsId: bigint;
  /** Null within one currency, where there is no spread. */
  readonly spreadTermsId: bigint | null;
};

/** Returns the origin of a corridor's price; throws if there is no corridor, hence no price. */
export function priceOriginOf(rates: CurrencyRates, corridor: Corridor | undefined): PriceOrigin {
  if (corridor === undefined) throw new Error('A price was computed without a corridor.');
  const { source, destination, feeTermsId, spreadTermsId } = corridor;
  return { ...originOf(rates, source, destination), feeTermsId, spreadTermsId };
}

/** The terms of each currency at a time: of those in force, an account's own first, then the latest begun. */
const termsAt = (sql: Sql, owners: Fragment, at: Fragment) => sql`
  select distinct on (t.currency) t.* from terms t
   where ${owners} and t.valid_from <= ${at} and (t.valid_until is null or t.valid_until > ${at})
   order by t.currency, t.account_id is null, t.valid_from desc, t.id desc`;

/** Condition: terms that may apply to an account, its own and, for other currencies, the general ones. */
const ownersFor = (sql: Sql, accountId: Fragment) => sql`
  (t.account_id is null or t.account_id = ${accountId})`;

/**
 * Returns the terms of an account, the database's time, which is the time of prices on these terms, and the
 * rules that open or close corridors.
 */
export async function currentTerms(
  sql: Sql,
  accountId: string,
  currencies?: readonly string[],
): Promise<{
  readonly at: Date;
  readonly terms: readonly TermsRow[];
  readonly openings: readonly Opening[];
}> {
  const [rows, openings] = await Promise.all([
    sql<(TermsRow & { readonly at: Date })[]>`
      select date_trunc('milliseconds', now()) as at, t.*
        from (${termsAt(sql, ownersFor(sql, sql`${accountId}`), sql`now()`)}) t
       where ${when(sql, currencies, (some) => sql`currency = any (${some})`)}`,
    currentOpenings(sql),
  ]);
  // Without terms there are no prices, so the time does not matter.
  return { at: rows[0]?.at ?? new Date(0), terms: rows, openings };
}

/** Returns the terms for payouts of one account: present ones, or for batch items, as of the request. */
export async function termsOfPayouts(
  sql: Sql,
  payoutIds: readonly string[],
): Promise<readonly (TermsRow & { readonly batchId: string | null })[]> {
  return sql<(TermsRow & { readonly batchId: string | null })[]>`
    select asked.batch_id, t.*
      from (select distinct p.account_id, p.batch_id, coalesce(b.created_at, now()) as at
              from payouts p left join batches b on b.id = p.batch_id
             where p.id = any (${payoutIds})) asked
     cross join lateral (${termsAt(sql, ownersFor(sql, sql`asked.account_id`), sql`asked.at`)}) t`;
}

/** Finds terms by their IDs. */
export async function findTerms(
  sql: Sql,
  ids: readonly (bigint | null)[],
): Promise<readonly TermsRow[]> {
  return sql<TermsRow[]>`select * from terms where id = any (${bigints(ids)}::bigint[])`;
}

/** Finds the terms of an account in a currency at a time; without an account, the general terms. */
export async function findTermsAt(
  sql: Sql,
  accountId: string | null,
  currency: string,
  at: Date,
): Promise<TermsRow> {
  const [row] = await sql<TermsRow[]>`
    select * from (${termsAt(sql, ownersFor(sql, sql`${accountId}`), sql`${at}`)}) t
     where currency = ${currency}`;
  return exactlyOne(row);
}

/** Returns terms in force and scheduled ones: an account's own, or without an account the general ones. */
export async function listTerms(
  sql: Sql,
  accountId: string | null,
  currency: string | undefined,
): Promise<readonly TermsRow[]> {
  const owner = sql`t.account_id is not distinct from ${accountId}`;
  return sql<TermsRow[]>`
    select * from (
      (${termsAt(sql, owner, sql`now()`)})
      union all select t.* from terms t where ${owner} and t.valid_from > now()) t
     where ${when(sql, currency, (wanted) => sql`currency = ${wanted}`)}
     order by currency, valid_from, id`;
}

/** Schedules terms. When the transaction ends, the database rejects a start that is not in the future. */
export async function insertTerms(sql: Sql, terms: Omit<TermsRow, 'id'>): Promise<TermsRow> {
  const [row] = await sql<TermsRow[]>`
    insert into terms (account_id, currency, fixed_minor, basis_points, minimum_minor,
      maximum_minor, spread_basis_points, valid_from, valid_until)
    values (${terms.accountId}, ${terms.currency}, ${terms.fixedMinor}, ${terms.basisPoints},
      ${terms.minimumMinor}, ${terms.maximumMinor}, ${terms.spreadBasisPoints},
      ${terms.validFrom}, ${terms.validUntil})
    returning *`;
  return exactlyOne(row);
}

/** Fees in minor units that payouts have paid, and would have paid on new terms. */
export type FeeComparison = {
  readonly mode: Mode;
  readonly payouts: number;
  readonly feeMinor: bigint;
  readonly newFeeMinor: bigint;
};

/**
 * Compares the fees that payouts settled in the last 30 days have paid with those on new terms: payouts of
 * an account, or all that were charged on the general terms, test and live apart. A fixed receive amount
 * stays the same; its new fee is that of the smallest source amount that leaves the same net amount (as
 * `feeFor` and `grossFor` in domain/corridor.ts). Subject to the usual statement timeout.
 */
export async function compareFees(
  sql: Sql,
  { accountId, currency, fixedMinor, basisPoints, minimumMinor }: Omit<TermsRow, 'id'>,
): Promise<readonly FeeComparison[]> {
  return sql<FeeComparison[]>`
    select mode, count(*)::int as payouts, sum(fee_minor)::bigint as fee_minor,
           sum(greatest(${minimumMinor}::bigint, case when fixed_side = 'source'
             then ${fixedMinor}::bigint + ceil(source_minor * ${basisPoints}::numeric / 10000)
             else ceil((net_minor + ${fixedMinor}::bigint) * 10000::numeric
                       / (10000 - ${basisPoints}::numeric)) - net_minor end))::bigint as new_fee_minor
      from payouts p
     where source_currency = ${currency} and settled_since > now() - interval '30 days'
       and case when ${accountId}::text is null
             then exists (select from terms t where t.id = p.fee_terms_id and t.account_id is null)
             else account_id = ${accountId} end
     group by mode order by mode`;
}
