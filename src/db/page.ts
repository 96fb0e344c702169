import type { Fragment } from 'postgres';
import { type Sql, when } from './client.js';

/** Where a row stands in its list: lists are ordered by time and, within it, by id. */
export type Position = { readonly at: Date; readonly id: string };

/**
 * What is asked of a list: up to `limit` rows, next to `from` on one side, or the newest; and of
 * all of them those that were created within bounds.
 */
export type Page = {
  readonly limit: number;
  readonly toward: 'older' | 'newer';
  readonly from: Position | null;
  readonly created?: Created | undefined;
};

/** Rows of a page, newest first whichever way it was walked, and whether more lie beyond. */
export type PageResult<T> = { readonly rows: readonly T[]; readonly hasMore: boolean };

/** Bounds of the time a row was created at. */
export type Created = {
  readonly gte?: Date | undefined;
  readonly gt?: Date | undefined;
  readonly lte?: Date | undefined;
  readonly lt?: Date | undefined;
};

/** The two columns that a list is ordered by. */
type Columns = readonly [at: string, id: string];

/**
 * The order and the end of a page's rows, nearest to the cursor first; one row more than asked
 * for shows whether there are more.
 */
export function orderAndLimit(sql: Sql, page: Page, [at, id]: Columns): Fragment {
  return page.toward === 'older'
    ? sql`order by ${sql(at)} desc, ${sql(id)} desc limit ${page.limit + 1}`
    : sql`order by ${sql(at)}, ${sql(id)} limit ${page.limit + 1}`;
}

/** The last condition, the order and the end of a page's rows: created within bounds, beyond its cursor. */
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

/** A page of the rows that were read with `pageRows`. */
export function toPage<T>(page: Page, rows: readonly T[]): PageResult<T> {
  const kept = rows.slice(0, page.limit);
  const newestFirst = page.toward === 'older' ? kept : kept.reverse();
  return { rows: newestFirst, hasMore: rows.length > page.limit };
}

/** The tables whose lists go on from an id. */
export type ListedTable = 'payouts' | 'batches' | 'beneficiaries' | 'webhook_endpoints' | 'events';

/** Where an account's object stands in its list, also one that is no longer listed. */
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
