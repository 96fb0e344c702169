import { jsonBody } from './bodies.js';
import { type List, listOf } from './lists.js';
import { keyOf } from './payouts.js';
import { queryOf } from './query.js';
import { pause } from './retry.js';
import type { RequestOptions, Transport, WriteOptions } from './transport.js';
import type { CorridorEvent, DeliveryWithAttempts, Page, Schemas } from './types.js';

export type ListenOptions = {
  /** The sequence of the last event that was processed; 0 begins with the first one there is. */
  readonly after?: number | undefined;
  /** Ends it. */
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
  /** Delivers an event again, with the same id: to one endpoint, or to each that it was for. */
  redeliver(
    id: string,
    params?: Schemas['redeliverEvent_params'],
    options?: WriteOptions,
  ): Promise<Page<DeliveryWithAttempts>>;
  /**
   * Every event in order and without gaps, as soon as it happens and for as long as it is read: keep
   * the `sequence` of the last one you have processed. It ends when the signal is aborted.
   */
  listen(options?: ListenOptions): AsyncGenerator<CorridorEvent, void, undefined>;
};

/** How long the service holds a request until there is an event: it allows 30 s, proxies less. */
const waitSeconds = 20;

/** The wait, and as long as any other request may take. */
const attemptMs = (waitSeconds + 30) * 1_000;

/** A service that stops answers at once; to ask it again at once would keep both busy. */
const leastPauseMs = 1_000;

const longestPage = 100;

/** It outlasts an outage of about two minutes; after that somebody should know. */
const feedRetries = 18;

export function eventsOf(send: Transport): Events {
  return {
    list: (params, options) => listOf<CorridorEvent>(send, '/v1/events', params, options),
    retrieve: (id, options) => send<CorridorEvent>({ method: 'GET', path: pathOf(id) }, options),
    deliveries: (id, options) =>
      listOf<DeliveryWithAttempts>(send, `${pathOf(id)}/deliveries`, {}, options),
    redeliver: (id, params = {}, options = {}) =>
      send<Page<DeliveryWithAttempts>>(
        {
          method: 'POST',
          path: `${pathOf(id)}/redeliver`,
          body: jsonBody(params),
          idempotencyKey: keyOf(options),
        },
        options,
      ),
    listen: (options = {}) => listen(send, options),
  };
}

async function* listen(
  send: Transport,
  { after = 0, signal }: ListenOptions,
): AsyncGenerator<CorridorEvent, void, undefined> {
  let last = after;
  // The caller is the limit: it goes on until it is left or its signal is aborted.
  for (;;) {
    const path = `/v1/events${queryOf({ after: last, limit: longestPage })}`;
    const headers = { prefer: `wait=${waitSeconds}` };
    const options = { signal, maxRetries: feedRetries, timeoutMs: attemptMs };
    const startedMs = performance.now();
    const read = send<Page<CorridorEvent>>({ method: 'GET', path, headers }, options);
    const page = await unlessAborted(read, signal);
    for (const event of page?.data ?? []) {
      if (signal?.aborted === true) return;
      yield event;
      last = event.sequence;
    }
    const restMs = leastPauseMs - (performance.now() - startedMs);
    if (page?.data.length === 0 && restMs > 0) await unlessAborted(pause(restMs, signal), signal);
    if (signal?.aborted === true) return;
  }
}

/** What comes of it, or nothing if the signal ended it: whoever aborts it expects no error. */
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
