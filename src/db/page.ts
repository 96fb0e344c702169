import type { Fragment } from 'postgres';
import { type Sql, when } from './client.js';

/** The position of a row in its list. Lists are ordered by time, then by ID. */
export type Position = { readonly at: Date; readonly id: string };

/**
 * A request for a page of a list: up to `limit` rows older or newer than `from`, or the newest if it is
 * null. `created` restricts the list to rows that were created within bounds.
 */
export type Page = {
  readonly limit: number;
  readonly toward: 'older' | 'newer';
  readonly from: Position | null;
  readonly created?: Created | undefined;
};

/** The rows of a page, newest first in either direction, and whether there are more beyond it. */
export type PageResult<T> = { readonly rows: readonly T[]; readonly hasMore: boolean };

/** Bounds on the time at which a row was created. */
export type Created = {
  readonly gte?: Date | undefined;
  readonly gt?: Date | undefined;
  readonly lte?: Date | undefined;
  readonly lt?: Date | undefined;
};

/** The two columns that a list is ordered by. */
type Columns = readonly [at: string, id: string];

/**
 * Returns the `order by` and `limit` of a page, rows nearest to the cursor first. Reads one row more than
 * requested, which shows whether there are more.
 */
export function orderAndLimit(sql: Sql, page: Page, [at, id]: Columns): Fragment {
  return page.toward === 'older'
    ? sql`order by ${sql(at)} desc, ${sql(id)} desc limit ${page.limit + 1}`
    : sql`order by ${sql(at)}, ${sql(id)} limit ${page.limit + 1}`;
}

/** Returns the last condition of a page's query (within `created`, beyond the cursor), order and limit. */
export function pageRows(sql: Sql, page: Page, columns: Columns): Fragment {
  const { created, from, toward } = page;
  const [at, id] = [sql(columns[0]), sql(columns[1])];
  return sql`
    ${when(sql, created?.gte, (time) => sql`${at} >= ${time}`)}
    and ${when(sql, created?.gt, (time) => sql`${at} > ${time}`)}
    and ${when(sql, created?.lte, (time) => sql`${at} <= ${time}`)}
    and ${when(sql, created?.lt, (time) => sql`${at} < ${time}`)}
    and ${when(sql, from, (cursor) =>
      toward === 'older'
        ? sql`(${at}, ${id}) < (${cursor.at}, ${cursor.id})`
        : sql`(${at}, ${id}) > (${cursor.at}, ${cursor.id})`,
    )}
    ${orderAndLimit(sql, page, columns)}`;
}

/** Makes a page from rows that were read with `pageRows`. */
export function toPage<T>(page: Page, rows: readonly T[]): PageResult<T> {
  const kept = rows.slice(0, page.limit);
  const newestFirst = page.toward === 'older' ? kept : kept.reverse();
  return { rows: newestFirst, hasMore: rows.length > page.limit };
}

/** Tables whose lists can be continued from an ID. */
export type ListedTable = 'payouts' | 'batches' | 'beneficiaries' | 'webhook_endpoints' | 'events';

/** Finds the position of an account's object in its list, even if it is no longer listed. */
export async function positionOf(
  sql: Sql,
  table: ListedTable,
  accountId: string,
  id: string,
): Promise<Position | undefined> {
  const clock = table === 'payouts' ? 'requested_at' : 'created_at';
  const [row] = await sql<Position[]>`
    select ${sql(clock)} as at, id from ${sql(table)}
     where id = ${id} and account_id = ${accountId}`;
  return row;
}
