import { CorridorConnectionError } from './errors.js';
import { type QueryValue, queryOf } from './query.js';
import type { RequestOptions, Transport } from './transport.js';
import type { Page } from './types.js';

/** A requested list. `await` returns its first page; `for await` iterates over all pages. */
export type List<Item> = Promise<Page<Item>> & AsyncIterable<Item>;

type Query = { readonly [name: string]: QueryValue };

/** Page size after the first page, unless the caller sets a limit: the API's maximum. */
const longestPage = 100;

/** Requests the first page at once, and each further page when the items before it have been consumed. */
export function listOf<Item extends object>(
  send: Transport,
  path: string,
  params: Query = {},
  options: RequestOptions = {},
): List<Item> {
  const read = (query: Query) =>
    send<Page<Item>>({ method: 'GET', path: path + queryOf(query) }, options);
  const first = read(params);
  // Avoids an unhandled rejection if the caller starts to iterate later: the iteration throws the error.
  first.catch(() => undefined);
  const isBackwards = params['ending_before'] !== undefined;
  async function* items(): AsyncGenerator<Item, void, undefined> {
    let page = await first;
    // Terminates with the list, because each page starts after the previous one and has items.
    for (;;) {
      const { data } = page;
      yield* isBackwards ? data.toReversed() : data;
      if (!page.has_more) return;
      const id = idOf(isBackwards ? data[0] : data.at(-1));
      const cursor = isBackwards ? { ending_before: id } : { starting_after: id };
      page = await read({ limit: longestPage, ...params, ...cursor });
    }
  }
  return Object.assign(first, { [Symbol.asyncIterator]: items });
}

/** Returns the ID after which the next page starts. Throws if there is none: the list would be incomplete. */
function idOf(last: object | undefined): string {
  if (last !== undefined && 'id' in last && typeof last.id === 'string') return last.id;
  // Deliveries have no ID. The cursor of an endpoint's deliveries is the event's ID.
  if (last !== undefined && 'event' in last && typeof last.event === 'string') return last.event;
  const message = 'The list goes on behind an object without an id, so its rest cannot be read.';
  throw new CorridorConnectionError(message, { idempotencyKey: undefined, attempts: 1 });
}
