import { CorridorConnectionError } from './errors.js';
import { type QueryValue, queryOf } from './query.js';
import type { RequestOptions, Transport } from './transport.js';
import type { Page } from './types.js';

/**
 * A list that was asked for. Awaited it is its first page; `for await` goes through all pages.
 */
export type List<Item> = Promise<Page<Item>> & AsyncIterable<Item>;

type Query = { readonly [name: string]: QueryValue };

/** Pages after the first are as long as they may be, unless the caller says otherwise. */
const longestPage = 100;

/** Asks for the first page at once, and for each further one when the items before it are used. */
export function listOf<Item extends object>(
  send: Transport,
  path: string,
  params: Query = {},
  options: RequestOptions = {},
): List<Item> {
  const read = (query: Query) =>
    send<Page<Item>>({ method: 'GET', path: path + queryOf(query) }, options);
  const first = read(params);
  // Whoever only iterates, and does so later, gets the error then: it is not unhandled until then.
  first.catch(() => undefined);
  const isBackwards = params['ending_before'] !== undefined;
  async function* items(): AsyncGenerator<Item, void, undefined> {
    let page = await first;
    // The list itself is the limit: each page begins behind the one before, and has items.
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

/** The id of the object behind which the next page begins: without it the list would be cut off. */
function idOf(last: object | undefined): string {
  if (last !== undefined && 'id' in last && typeof last.id === 'string') return last.id;
  // A delivery has no id of its own: a list of an endpoint's goes on behind an event.
  if (last !== undefined && 'event' in last && typeof last.event === 'string') return last.event;
  const message = 'The list goes on behind an object without an id, so its rest cannot be read.';
  throw new CorridorConnectionError(message, { idempotencyKey: undefined, attempts: 1 });
}
