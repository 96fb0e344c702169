import { listObject } from '../contract/objects.js';
import type { JsonObject } from '../contract/versions/jsonObject.js';
import type { Sql } from '../db/client.js';
import {
  type ListedTable,
  type Page,
  type PageResult,
  type Position,
  positionOf,
} from '../db/page.js';
import { type Refusal, refuse } from '../domain/refusal.js';
import { type ApiDeps, type ApiRequest, type Refused, refused, type Success } from './route.js';

/** The parameters that every list takes, as they are sent. */
export type PageParams = {
  readonly limit: number;
  readonly starting_after?: string | undefined;
  readonly ending_before?: string | undefined;
};

/** Finds where an object of the account stands in the list, or says that there is none. */
export type FindPosition = (
  sql: Sql,
  accountId: string,
  id: string,
) => Promise<Position | undefined>;

/** The usual way: by the id of a row of the list's table. */
export function byIdIn(table: ListedTable): FindPosition {
  return (sql, accountId, id) => positionOf(sql, table, accountId, id);
}

/**
 * The page that is asked for. `starting_after` goes on toward older objects and `ending_before`
 * back toward newer ones; both together, or an id that is not of this list, are refused.
 */
export async function readPage(
  deps: ApiDeps,
  request: ApiRequest,
  params: PageParams,
  find: FindPosition,
): Promise<Page | Refused> {
  const { limit, starting_after: after, ending_before: before } = params;
  if (after !== undefined && before !== undefined) {
    return refused(exclusive('ending_before', 'starting_after'));
  }
  const id = after ?? before;
  if (id === undefined) return { limit, toward: 'older', from: null };
  const from = await find(deps.database, request.account.id, id);
  if (from !== undefined) return { limit, toward: before === undefined ? 'older' : 'newer', from };
  const param = before === undefined ? 'starting_after' : 'ending_before';
  const expected = 'the id of an object of this list';
  return refused(refuse('cursor_not_found', { param, expected, received: id }));
}

/** Refuses a parameter because of another one that was sent. */
export function exclusive(param: string, other: string): Refusal {
  return refuse('parameters_exclusive', { param, expected: `to be left out with ${other}` });
}

/** A page as a list of objects. */
export function pageAnswer<T>(page: PageResult<T>, render: (row: T) => JsonObject): Success {
  return { status: 200, body: listObject(page.rows.map(render), page.hasMore) };
}
