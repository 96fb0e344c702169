import { listObject } from '../contract/objects.js';
import type { JsonObject } from '../contract/versions/index.js';
import type { Sql } from '../db/client.js';
import { type ListedTable, type Page, type PageResult, positionOf } from '../db/page.js';
import type { Keyring } from '../db/personalData.js';
import { isRefusal, type Refusal, refuse } from '../domain/refusal.js';
import { notFound, type Route, type RouteWithParams, refused, route } from './route.js';

/** The parameters that every list takes, as they are sent. */
type PageParams = {
  readonly limit: number;
  readonly starting_after?: string | undefined;
  readonly ending_before?: string | undefined;
  readonly created?: Page['created'];
};

/** What pages are made of: whose rows they are, in which place each stands, and how it is shown. */
type Paging<Params, Place, Row> = {
  /** The id of whose list it is, if there is such an object; without it the account's. */
  readonly owner?: (sql: Sql, accountId: string, id: string) => Promise<string | undefined>;
  /** Finds where an object stands in the list, or says that it is not there. */
  readonly find: (sql: Sql, ownerId: string, id: string) => Promise<Place | undefined>;
  /** What `find` finds, for the refusal of another id. */
  readonly found?: string;
  readonly query: (
    sql: Sql,
    ownerId: string,
    page: Omit<Page, 'from'> & { readonly from: Place | null },
    /** The keyring is for lists that show the details of beneficiaries. */
    params: Params & { readonly keyring: Keyring },
  ) => Promise<PageResult<Row> | Refusal>;
  readonly render: (row: Row) => JsonObject;
  /** See `Answer.restMs`. */
  readonly restMs?: (params: Params) => number;
};

/**
 * A route that answers page by page. `starting_after` goes on toward older objects and
 * `ending_before` back toward newer ones; both together, or an id that is not of this list, are
 * refused.
 */
export function listRoute<Params extends PageParams, Place, Row>(
  list: Omit<RouteWithParams<Params>, 'method' | 'handle'> & Paging<Params, Place, Row>,
): Route {
  const goesBack = 'ending_before' in list.params.shape;
  const refusals = goesBack ? (['parameters_exclusive'] as const) : [];
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
      // No id is empty.
      const id = after ?? before ?? '';
      const from = id === '' ? null : await list.find(database, ownerId, id);
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

/** The usual way to find a place: by the id of a row of the list's table. */
export function byIdIn(table: ListedTable) {
  return (sql: Sql, accountId: string, id: string) => positionOf(sql, table, accountId, id);
}

/** Refuses a parameter because of another one that was sent. */
export function exclusive(param: string, other: string): Refusal {
  return refuse('parameters_exclusive', { param, expected: `left out when ${other} is sent` });
}
