import { jsonBody } from './bodies.js';
import { type List, listOf } from './lists.js';
import { keyOf } from './payouts.js';
import { queryOf } from './query.js';
import { pause } from './retry.js';
import type { RequestOptions, Transport, WriteOptions } from './transport.js';
import type { CorridorEvent, DeliveryWithAttempts, Page, Schemas } from './types.js';

export type ListenOptions = {
  /** The sequence of the last processed event; 0 starts with the first event. */
  readonly after?: number | undefined;
  /** Ends the iteration. */
  readonly signal?: AbortSignal | undefined;
};

/** Events and their deliveries. */
export type Events = {
  /** Lists events, newest first. */
  list(
    params?: Omit<Schemas['listEvents_params'], 'after'>,
    options?: RequestOptions,
  ): List<CorridorEvent>;
  /** Reads an event. */
  retrieve(id: string, options?: RequestOptions): Promise<CorridorEvent>;
  /** Lists an event's deliveries to each endpoint, with their attempts. */
  deliveries(id: string, options?: RequestOptions): List<DeliveryWithAttempts>;
  /** Delivers an event again with the same ID, to one endpoint or to all that it was for. */
  redeliver(
    id: string,
    params?: Schemas['redeliverEvent_params'],
    options?: WriteOptions,
  ): Promise<Page<DeliveryWithAttempts>>;
  /**
   * Yields every event in order and without gaps, as soon as it happens. Store the `sequence` of the last
   * event you have processed. The iteration ends when the signal is aborted.
   */
  listen(options?: ListenOptions): AsyncGenerator<CorridorEvent, void, undefined>;
};

/** Duration of a long poll: the service allows 30 s, some proxies less. */
const waitSeconds = 20;

/** Timeout of an attempt: the long poll plus the timeout of any other request. */
const attemptMs = (waitSeconds + 30) * 1_000;

/** Minimum pause between polls: a service that is shutting down answers at once, without waiting. */
const leastPauseMs = 1_000;

const longestPage = 100;

/** Number of retries, enough for an outage of about two minutes. A longer one should be noticed. */
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
  // Runs until the caller stops iterating or aborts the signal.
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

/** Returns the result, or undefined after an abort: a caller who aborts does not expect an error. */
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
