import { listObject } from '../contract/objects.js';
import type { JsonObject } from '../contract/versions/index.js';
import type { Sql } from '../db/client.js';
import { type ListedTable, type Page, type PageResult, positionOf } from '../db/page.js';
import type { Keyring } from '../db/personalData.js';
import { isRefusal, type Refusal, refuse } from '../domain/refusal.js';
import { notFound, type Route, type RouteWithParams, refused, route } from './route.js';

/** The parameters of every list, as they are sent. */
type PageParams = Pick<Page, 'limit' | 'created'> & {
  readonly starting_after?: string | undefined;
  readonly ending_before?: string | undefined;
};

/** How a list is paged: whose rows it has, how a position is found and queried, and how a row is rendered. */
type Paging<Params, Place, Row> = {
  /** Returns the ID of the list's owner, or undefined if there is none. By default it is the account. */
  readonly owner?: (sql: Sql, accountId: string, id: string) => Promise<string | undefined>;
  /** Returns the position of an object in the list, or undefined if it is not in the list. */
  readonly find: (
    sql: Sql,
    ownerId: string,
    id: string,
    params: Params,
  ) => Promise<Place | undefined>;
  /** What `find` accepts, in words, for the refusal of any other ID. */
  readonly found?: string;
  readonly query: (
    sql: Sql,
    ownerId: string,
    page: Omit<Page, 'from'> & { readonly from: Place | null },
    /** The keyring decrypts the details of beneficiaries, for lists that show them. */
    params: Params & { readonly keyring: Keyring },
  ) => Promise<PageResult<Row> | Refusal>;
  readonly render: (row: Row) => JsonObject;
  /** See `Answer.restMs`. */
  readonly restMs?: (params: Params) => number;
};

/**
 * Builds a route that returns pages. `starting_after` continues toward older objects, and `ending_before`
 * back toward newer ones. Both together, or an ID that is not in the list, are refused.
 */
export function listRoute<Params extends PageParams, Place, Row>(
  list: Omit<RouteWithParams<Params>, 'method' | 'handle'> & Paging<Params, Place, Row>,
): Route {
  const refusals = 'ending_before' in list.params.shape ? (['parameters_exclusive'] as const) : [];
  return route({
    ...list,
    method: 'get',
    refusals: ['cursor_not_found', ...refusals, ...(list.refusals ?? [])],
    handle: async ({ database, keyring }, request, params) => {
      const { limit, starting_after: after, ending_before: before, created } = params;
      if (after !== undefined && before !== undefined) {
        return refused(exclusive('ending_before', 'starting_after'));
      }
      const { id: accountId } = request.account;
      const ownerId = list.owner ? await list.owner(database, accountId, request.id) : accountId;
      if (ownerId === undefined) return refused(notFound(request));
      // The empty string is never an ID.
      const id = after ?? before ?? '';
      const from = id === '' ? null : await list.find(database, ownerId, id, params);
      if (from === undefined) {
        const param = before === undefined ? 'starting_after' : 'ending_before';
        const { found: expected = 'the id of an object of this list' } = list;
        return refused(refuse('cursor_not_found', { param, expected, received: id }));
      }
      const toward = before === undefined ? 'older' : 'newer';
      const page = { limit, toward, from, created } as const;
      const result = await list.query(database, ownerId, page, { ...params, keyring });
      const restMs = list.restMs?.(params) ?? 0;
      if (isRefusal(result)) return { ...refused(result), restMs };
      const body = listObject(result.rows.map(list.render), result.hasMore);
      return { status: 200, body, restMs };
    },
  });
}

/** Returns the usual `find`: the position of the row with an ID in the list's table. */
export function byIdIn(table: ListedTable) {
  return (sql: Sql, accountId: string, id: string) => positionOf(sql, table, accountId, id);
}

/** Refuses a parameter because another, exclusive one was sent. */
export function exclusive(param: string, other: string): Refusal {
  return refuse('parameters_exclusive', { param, expected: `left out when ${other} is sent` });
}
