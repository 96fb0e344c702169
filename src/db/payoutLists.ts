import type { Fragment } from 'postgres';
import { type PayoutStatus, payoutStatuses } from '../domain/payout.js';
import { exactlyOne, type Sql, when } from './client.js';
import { orderAndLimit, type Page, type PageResult, pageRows, toPage } from './page.js';
import type { PayoutRow } from './payouts.js';

/** Filters for payouts, named like the search terms and the columns that store them. */
export type PayoutFilter = {
  readonly status?: readonly PayoutStatus[] | undefined;
  readonly source_currency?: string | undefined;
  readonly destination_currency?: string | undefined;
  readonly reference?: string | undefined;
  readonly beneficiary?: string | undefined;
  readonly batch?: string | undefined;
  /** Matches payouts that have all of these names with these values. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
};

/**
 * Lists a page of an account's payouts. With one filter it reads only a few times the page's rows, however
 * many match. With several, it looks payouts up by the rarest filter and checks the others on each row. If
 * that takes too many rows, the result is `too broad`.
 */
export async function listPayouts(
  sql: Sql,
  accountId: string,
  page: Page,
  filter: PayoutFilter,
): Promise<PageResult<PayoutRow> | 'too broad'> {
  const search = { sql, accountId, page, filter };
  const [path, ...others] = pathsOf(filter);
  if (path === undefined) return toPage(page, await byStatus(search, payoutStatuses));
  const rarest =
    others.length === 0 ? { ...path, count: 0 } : await rarestOf(search, [path, ...others]);
  const { name, count } = rarest;
  const statuses = filter.status ?? [];
  const rows = await (name === 'status' ? byStatus(search, statuses) : byTerm(search, rarest));
  // With several statuses, one may fill the page with rows beyond the point where another was cut off.
  const hasHoles = name === 'status' && statuses.length > 1;
  const isCut = count > walkRows && (rows.length <= page.limit || hasHoles);
  return isCut ? 'too broad' : toPage(page, rows);
}

type Search = {
  readonly sql: Sql;
  readonly accountId: string;
  readonly page: Page;
  readonly filter: PayoutFilter;
};

/** A way to find payouts: by one of their terms, or by status (any of a comma-separated list). */
type Path = { readonly name: string; readonly value: string };

/** Returns the filters, with those that usually match few payouts first. */
function pathsOf(filter: PayoutFilter): readonly Path[] {
  const metadata = Object.entries(filter.metadata ?? {});
  const paths = [
    { name: 'reference', value: filter.reference },
    { name: 'batch', value: filter.batch },
    { name: 'beneficiary', value: filter.beneficiary },
    { name: 'status', value: filter.status?.join() },
    ...metadata.map(([key, value]) => ({ name: `metadata ${key}`, value })),
    { name: 'destination_currency', value: filter.destination_currency },
    { name: 'source_currency', value: filter.source_currency },
  ];
  return paths.filter((path): path is Path => path.value !== undefined);
}

/** Whether there are several filters, so that they are compared and up to `walkRows` rows are read. */
export function isSearch(filter: PayoutFilter): boolean {
  return pathsOf(filter).length > 1;
}

/** Maximum number of rows read: 10 to 20 ms. Enough if each filter matches few or most match together. */
const walkRows = 2_000;

/** The rows to read for a page, in the order of the list and of the indexes. */
function walked({ sql, page }: Search, id: 'id' | 'payout_id'): Fragment {
  return pageRows(sql, { ...page, limit: walkRows }, ['requested_at', id]);
}

/** The rows that match a term. Each term has its own column, except those of metadata, which share one. */
function termsOf({ sql, accountId }: Search, { name, value }: Path): Fragment {
  const rows = name.startsWith('metadata ')
    ? sql`payout_metadata_terms where term`
    : sql`payout_terms where ${sql(name)}`;
  return sql`${rows} = payout_term(${accountId}, ${name}, ${value})`;
}

/** Maximum number of filters compared to find the rarest. Any others are only checked on each row. */
const comparedPaths = 8;

/** Returns the filter that matches the fewest payouts beyond the cursor, counted up to `walkRows`. */
async function rarestOf(search: Search, paths: readonly Path[]): Promise<Path & { count: number }> {
  const { sql, accountId, filter } = search;
  const compared = paths.slice(0, comparedPaths);
  const withStatus = sql`(
    select max(w.count) from unnest(${[...(filter.status ?? [])]}::text[]) s (status)
     cross join lateral (select count(*) from (select from payouts
      where account_id = ${accountId} and status = s.status and ${walked(search, 'id')}) r) w)`;
  const withTerm = (path: Path) => sql`(select count(*) from (
    select from ${termsOf(search, path)} and ${walked(search, 'payout_id')}) r)`;
  const counts = compared.map((path) => {
    const count = path.name === 'status' ? withStatus : withTerm(path);
    return sql`select ${path.name}::text as name, ${path.value}::text as value, ${count}::int as count`;
  });
  const [rarest] = await sql<(Path & { count: number })[]>`
    select * from (${counts.reduce((all, one) => sql`${all} union all ${one}`)}) c order by count limit 1`;
  return exactlyOne(rarest);
}

/** Reads each status by its index: the newest payouts overall are among the newest of each status. */
async function byStatus(search: Search, statuses: readonly string[]) {
  const { sql, accountId, page, filter } = search;
  return sql<PayoutRow[]>`
    select p.* from unnest(${[...new Set(statuses)]}::text[]) s (status) cross join lateral (
      select * from (
        select * from payouts
         where account_id = ${accountId} and status = s.status and ${walked(search, 'id')}) w
       where ${matching(sql, filter)}
       ${orderAndLimit(sql, page, ['requested_at', 'id'])}) p
    ${orderAndLimit(sql, page, ['p.requested_at', 'p.id'])}`;
}

/**
 * Reads a term's rows in the order of the list and looks each payout up by its ID alone. The limit of
 * one row keeps the planner from joining whole tables, and from using another index, which it does when
 * it expects few rows.
 */
async function byTerm(search: Search, path: Path) {
  const { sql, accountId, page, filter } = search;
  return sql<PayoutRow[]>`
    select p.* from (
      select requested_at, payout_id from ${termsOf(search, path)}
         and ${walked(search, 'payout_id')}) t
     cross join lateral (select * from payouts where id = t.payout_id limit 1) p
     where account_id = ${accountId} and ${matching(sql, filter)}
     ${orderAndLimit(sql, page, ['t.requested_at', 't.payout_id'])}`;
}

function matching(sql: Sql, filter: PayoutFilter): Fragment {
  const is = (column: string, value: string | undefined) =>
    when(sql, value, (wanted) => sql`${sql(column)} = ${wanted}`);
  return sql`
    ${when(sql, filter.status, (wanted) => sql`status = any(${[...wanted]})`)}
    and ${is('source_currency', filter.source_currency)}
    and ${is('destination_currency', filter.destination_currency)}
    and ${is('reference', filter.reference)}
    and ${is('beneficiary_id', filter.beneficiary)}
    and ${is('batch_id', filter.batch)}
    and ${when(sql, filter.metadata, (wanted) => sql`metadata @> ${sql.json(wanted)}`)}`;
}
