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

/** Maximum time for which the API delays a response. */
const longestPreferSeconds = 30;

/** Payouts: each sends money to one beneficiary. */
export type Payouts = {
  /** Sends a payout. A refusal is a CorridorProblem, and `payout` names what records it, if anything. */
  create(params: PayoutParams, options?: WriteOptions): Promise<Payout>;
  /**
   * Sends a payout and waits until it is settled, failed, canceled or returned. Sending may take as long
   * as with `create`, even if the wait is short.
   *
   * @throws CorridorWaitTimeoutError with the payout if it is not final within `timeoutMs`
   */
  createAndWait(
    params: PayoutParams,
    options?: WaitOptions & Pick<WriteOptions, 'idempotencyKey' | 'maxRetries'>,
  ): Promise<Payout>;
  /** Waits until a payout is final. */
  wait(id: string, options?: WaitOptions): Promise<Payout>;
  /** Reads a payout. `expand` replaces IDs with the objects. */
  retrieve(id: string, params: Expanded, options?: RequestOptions): Promise<ExpandedPayout>;
  retrieve(id: string, params?: undefined, options?: RequestOptions): Promise<Payout>;
  /** Lists payouts, newest first. `expand` replaces IDs with the objects. */
  list(params: PayoutListParams & Expanded, options?: RequestOptions): List<ExpandedPayout>;
  list(params?: Omit<PayoutListParams, 'expand'>, options?: RequestOptions): List<Payout>;
  /** Reads how a payout's price was computed. Before it is accepted, there are no steps. */
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
      // Timeout of an attempt: the wait plus the timeout of any other request.
      const attemptMs = (waitSeconds + longestPreferSeconds) * 1_000;
      const headers = { prefer: `wait=${waitSeconds}` };
      const idempotencyKey = keyOf(options);
      const chosen = { ...others, idempotencyKey, timeoutMs: attemptMs };
      const sent = await create(params, chosen, headers);
      try {
        return await until(sent, options, startedMs);
      } catch (error) {
        // A caller who aborts here does not know the payout's ID and could send another payout.
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

/** Statuses of unfinished payouts. Every other status is final, including those added in later versions. */
const openStatuses: ReadonlySet<string> = new Set(['pending', 'processing', 'sent']);

function pathOf(id: string): string {
  return `/v1/payouts/${encodeURIComponent(id)}`;
}

/** Returns the caller's idempotency key, or a new unique one. */
export function keyOf({ idempotencyKey }: WriteOptions): string {
  return idempotencyKey ?? globalThis.crypto.randomUUID();
}
