import { type List, listOf } from './lists.js';
import { queryOf } from './query.js';
import { pause } from './retry.js';
import type { RequestOptions, Transport } from './transport.js';
import type { CorridorEvent, DeliveryWithAttempts, Page, Schemas } from './types.js';

export type FeedOptions = {
  /** The sequence of the last event that was processed; 0 begins with the first one there is. */
  readonly after?: number | undefined;
  /** Between two looks while there is nothing new. */
  readonly pollIntervalMs?: number | undefined;
  /** Ends the feed. */
  readonly signal?: AbortSignal | undefined;
};

/** What has happened, and the deliveries of each event. */
export type Events = {
  /** Lists events, newest first. */
  list(
    params?: Omit<Schemas['listEvents_params'], 'after'>,
    options?: RequestOptions,
  ): List<CorridorEvent>;
  /** Reads an event. */
  retrieve(id: string, options?: RequestOptions): Promise<CorridorEvent>;
  /** Lists what became of an event at each endpoint, with the attempts. */
  deliveries(id: string, options?: RequestOptions): List<DeliveryWithAttempts>;
  /**
   * Every event in order and without gaps, for as long as it is read: keep the `sequence` of the
   * last one you have processed. It ends when the signal is aborted.
   */
  feed(options?: FeedOptions): AsyncGenerator<CorridorEvent, void, undefined>;
};

/** One read a second is a small part of an account's rate limit. */
const usualPollIntervalMs = 1_000;

const longestPage = 100;

/** A feed outlasts an outage of about two minutes; after that somebody should know. */
const feedRetries = 18;

export function eventsOf(send: Transport): Events {
  return {
    list: (params, options) => listOf<CorridorEvent>(send, '/v1/events', params, options),
    retrieve: (id, options) => send<CorridorEvent>({ method: 'GET', path: pathOf(id) }, options),
    deliveries: (id, options) =>
      listOf<DeliveryWithAttempts>(send, `${pathOf(id)}/deliveries`, {}, options),
    feed: (options = {}) => feed(send, options),
  };
}

async function* feed(
  send: Transport,
  { after = 0, pollIntervalMs = usualPollIntervalMs, signal }: FeedOptions,
): AsyncGenerator<CorridorEvent, void, undefined> {
  let last = after;
  // The caller is the limit: a feed goes on until it is left or its signal is aborted.
  for (;;) {
    const path = `/v1/events${queryOf({ after: last, limit: longestPage })}`;
    const options = { signal, maxRetries: feedRetries };
    const read = send<Page<CorridorEvent>>({ method: 'GET', path }, options);
    const page = await unlessAborted(read, signal);
    for (const event of page?.data ?? []) {
      if (signal?.aborted === true) return;
      yield event;
      last = event.sequence;
    }
    if (page?.has_more !== true) await unlessAborted(pause(pollIntervalMs, signal), signal);
    if (signal?.aborted === true) return;
  }
}

/** What comes of it, or nothing if the signal ended it: whoever aborts a feed expects no error. */
async function unlessAborted<Result>(
  work: Promise<Result>,
  signal: AbortSignal | undefined,
): Promise<Result | undefined> {
  try {
    return await work;
  } catch (error) {
    if (signal?.aborted === true) return undefined;
    throw error;
  }
}

function pathOf(id: string): string {
  return `/v1/events/${encodeURIComponent(id)}`;
}
