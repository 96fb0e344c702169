import type { Fragment } from 'postgres';
import { type PayoutStatus, payoutStatuses } from '../domain/payout.js';
import { exactlyOne, type Sql, when } from './client.js';
import { orderAndLimit, type Page, type PageResult, pageRows, toPage } from './page.js';
import type { PayoutRow } from './payouts.js';

/** What payouts are asked for by, under the names of their terms and of the columns that hold those. */
export type PayoutFilter = {
  readonly status?: readonly PayoutStatus[] | undefined;
  readonly source_currency?: string | undefined;
  readonly destination_currency?: string | undefined;
  readonly reference?: string | undefined;
  readonly beneficiary?: string | undefined;
  readonly batch?: string | undefined;
  /** All of these names with these values. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
};

/**
 * A page of an account's payouts. With one filter the rows read are a few times the page,
 * however many there are; with several the rarest finds and the others sort out, and if that
 * takes too many rows the list is `too broad`.
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
  // Of several statuses one may fill the page with what is older than where another was given up.
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

/** What payouts are found by: a term of theirs, or their status, which is any of a list. */
type Path = { readonly name: string; readonly value: string };

/** The filters, those that usually name few first. */
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

/** Whether several filters are compared, and up to `walkRows` rows looked through. */
export function isSearch(filter: PayoutFilter): boolean {
  return pathsOf(filter).length > 1;
}

/** 10 to 20 ms. Filters that name few payouts each, or meet often enough, are answered within it. */
const walkRows = 2_000;

/** The rows that are looked through for a page, in the order of the list and of the indexes. */
function walked({ sql, page }: Search, id: 'id' | 'payout_id'): Fragment {
  return pageRows(sql, { ...page, limit: walkRows }, ['requested_at', id]);
}

/** The rows of a term; a column of its own has each but those of metadata. */
function termsOf({ sql, accountId }: Search, { name, value }: Path): Fragment {
  const rows = name.startsWith('metadata ')
    ? sql`payout_metadata_terms where term`
    : sql`payout_terms where ${sql(name)}`;
  return sql`${rows} = payout_term(${accountId}, ${name}, ${value})`;
}

/** How many filters are compared to find the rarest; the others only sort out. */
const comparedPaths = 8;

/** The filter that names the fewest payouts beyond the cursor, counted as far as they are walked. */
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

/** The newest of each status are among the newest of all. */
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
 * Walks the term in the order of the list and looks each payout up by its id alone. The limit of
 * one row keeps the planner from joining the tables as wholes, and from looking it up by another
 * index, which it does where it guesses few rows.
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
