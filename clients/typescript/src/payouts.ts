import { jsonBody } from './bodies.js';
import { type List, listOf } from './lists.js';
import { queryOf } from './query.js';
import {
  type RequestOptions,
  type Transport,
  throwIfAborted,
  type WriteOptions,
} from './transport.js';
import type { Calculation, ExpandedPayout, Payout, PayoutParams, Schemas } from './types.js';
import { defaultWaitMs, readRetries, untilFinal, type WaitOptions } from './waiting.js';

export type PayoutListParams = Schemas['listPayouts_params'];
type Expanded = { readonly expand: NonNullable<PayoutListParams['expand']> };

/** The longest time that the API delays an answer. */
const longestPreferSeconds = 30;

/** Money to one beneficiary: sent, followed and canceled. */
export type Payouts = {
  /** Sends a payout. A refusal is a CorridorProblem whose `payout` records it. */
  create(params: PayoutParams, options?: WriteOptions): Promise<Payout>;
  /**
   * Sends a payout and waits until it is settled, failed, canceled or returned. To send it may
   * take as long as with `create`, however short the wait is.
   *
   * @throws CorridorWaitTimeoutError with the payout when it is not final in `timeoutMs`
   */
  createAndWait(
    params: PayoutParams,
    options?: WaitOptions & Pick<WriteOptions, 'idempotencyKey' | 'maxRetries'>,
  ): Promise<Payout>;
  /** Waits until a payout is final. */
  wait(id: string, options?: WaitOptions): Promise<Payout>;
  /** Reads a payout; with `expand`, with objects in place of their ids. */
  retrieve(id: string, params: Expanded, options?: RequestOptions): Promise<ExpandedPayout>;
  retrieve(id: string, params?: undefined, options?: RequestOptions): Promise<Payout>;
  /** Lists payouts, newest first; with `expand`, with objects in place of their ids. */
  list(params: PayoutListParams & Expanded, options?: RequestOptions): List<ExpandedPayout>;
  list(params?: Omit<PayoutListParams, 'expand'>, options?: RequestOptions): List<Payout>;
  /** Reads how its price was computed; without steps before it is accepted. */
  calculation(id: string, options?: RequestOptions): Promise<Calculation>;
  /** Cancels a payout that the bank has not accepted. */
  cancel(id: string, options?: WriteOptions): Promise<Payout>;
};

export function payoutsOf(send: Transport): Payouts {
  const create = (params: PayoutParams, options: WriteOptions = {}, headers = {}) =>
    send<Payout>(
      {
        method: 'POST',
        path: '/v1/payouts',
        body: jsonBody(params),
        headers,
        idempotencyKey: keyOf(options),
      },
      options,
    );
  const until = (first: Payout, options: WaitOptions, startedMs: number) =>
    untilFinal(
      first,
      {
        isFinal: ({ status }) => !openStatuses.has(status),
        read: () =>
          send<Payout>(
            { method: 'GET', path: pathOf(first.id) },
            { signal: options.signal, maxRetries: readRetries },
          ),
      },
      { ...options, startedMs },
    );
  return {
    create: (params, options) => create(params, options),
    createAndWait: async (params, options = {}) => {
      const startedMs = Date.now();
      const { timeoutMs = defaultWaitMs, ...others } = options;
      const waitSeconds = Math.max(0, Math.min(longestPreferSeconds, Math.ceil(timeoutMs / 1_000)));
      // One attempt may take the wait and as long as any other request.
      const attemptMs = (waitSeconds + longestPreferSeconds) * 1_000;
      const headers = { prefer: `wait=${waitSeconds}` };
      const idempotencyKey = keyOf(options);
      const chosen = { ...others, idempotencyKey, timeoutMs: attemptMs };
      const sent = await create(params, chosen, headers);
      try {
        return await until(sent, options, startedMs);
      } catch (error) {
        // Whoever gives up here has not the id of the payout, and would send another one.
        throwIfAborted(options.signal, { idempotencyKey, attempts: 1 });
        throw error;
      }
    },
    wait: async (id, options = {}) => {
      const startedMs = Date.now();
      const { signal } = options;
      const first = await send<Payout>({ method: 'GET', path: pathOf(id) }, { signal });
      return until(first, options, startedMs);
    },
    retrieve: <Read extends Payout | ExpandedPayout>(
      id: string,
      params?: Expanded,
      options?: RequestOptions,
    ) => send<Read>({ method: 'GET', path: pathOf(id) + queryOf(params ?? {}) }, options),
    list: <Read extends Payout | ExpandedPayout>(
      params?: PayoutListParams,
      options?: RequestOptions,
    ): List<Read> => listOf<Read>(send, '/v1/payouts', params, options),
    calculation: (id, options) =>
      send<Calculation>({ method: 'GET', path: `${pathOf(id)}/calculation` }, options),
    cancel: (id, options = {}) =>
      send<Payout>(
        { method: 'POST', path: `${pathOf(id)}/cancel`, idempotencyKey: keyOf(options) },
        options,
      ),
  };
}

/** In these a payout goes on; in every other one, also one that a later version adds, it has ended. */
const openStatuses: ReadonlySet<string> = new Set(['pending', 'processing', 'sent']);

function pathOf(id: string): string {
  return `/v1/payouts/${encodeURIComponent(id)}`;
}

/** The caller's key, or one that no other request has. */
export function keyOf({ idempotencyKey }: WriteOptions): string {
  return idempotencyKey ?? globalThis.crypto.randomUUID();
}
