import { csvBody, jsonBody, ndjsonBody, type TextSource } from './bodies.js';
import { type List, listOf } from './lists.js';
import { keyOf } from './payouts.js';
import { queryOf } from './query.js';
import type { Body, RequestOptions, Transport, WriteOptions } from './transport.js';
import type {
  Batch,
  BatchItem,
  BatchMode,
  BatchParams,
  BatchPreview,
  CanceledBatch,
  Payout,
  Schemas,
} from './types.js';
import { readRetries, untilFinal, type WaitOptions } from './waiting.js';

type Mode = { readonly mode?: BatchMode | undefined };

/** Batches: up to 10,000 payouts in one request. */
export type Batches = {
  /** Sends a list of payouts as JSON. */
  create(params: BatchParams, options?: WriteOptions): Promise<Batch>;
  /** Sends the items of an iterable as NDJSON, reading them one by one. */
  createFrom(
    items: Iterable<BatchItem> | AsyncIterable<BatchItem>,
    options?: WriteOptions & Mode,
  ): Promise<Batch>;
  /** Sends CSV with a header row of parameter names, such as `metadata[order]`. */
  createFromCsv(csv: TextSource, options?: WriteOptions & Mode): Promise<Batch>;
  /** Prices a batch and returns every refusal, without storing anything. */
  preview(params: BatchParams, options?: RequestOptions): Promise<BatchPreview>;
  /** The same for CSV. */
  previewCsv(csv: TextSource, options?: RequestOptions & Mode): Promise<BatchPreview>;
  /** Reads a batch with its counts and totals. */
  retrieve(id: string, options?: RequestOptions): Promise<Batch>;
  /** Lists batches, newest first; their counts and totals are null. */
  list(params?: Schemas['listBatches_params'], options?: RequestOptions): List<Batch>;
  /** Lists the payouts of a batch, in the order of the request. */
  payouts(
    id: string,
    params?: Schemas['listBatchPayouts_params'],
    options?: RequestOptions,
  ): List<Payout>;
  /**
   * Waits until every payout of a batch is final.
   *
   * @throws CorridorWaitTimeoutError if they are not final within `timeoutMs`
   */
  wait(id: string, options?: WaitOptions): Promise<Batch>;
  /** Cancels the payouts that have not been sent to the bank yet. */
  cancel(id: string, options?: WriteOptions): Promise<CanceledBatch>;
};

export function batchesOf(send: Transport): Batches {
  const post = <Answer>(body: Body, query: string, options: WriteOptions, key?: string) =>
    send<Answer>(
      { method: 'POST', path: `/v1/batches${query}`, body, idempotencyKey: key },
      options,
    );
  // All items are read before anything is sent, so if the source fails, nothing has been sent.
  const createOf = async (body: Promise<Body>, { mode, ...options }: WriteOptions & Mode) =>
    post<Batch>(await body, queryOf({ mode }), options, keyOf(options));
  const retrieve = (id: string, options?: RequestOptions) =>
    send<Batch>({ method: 'GET', path: pathOf(id) }, options);
  return {
    create: (params, options = {}) => post<Batch>(jsonBody(params), '', options, keyOf(options)),
    createFrom: (items, options = {}) => createOf(ndjsonBody(items), options),
    createFromCsv: (csv, options = {}) => createOf(csvBody(csv), options),
    preview: (params, options = {}) =>
      post<BatchPreview>(jsonBody(params), queryOf({ validate_only: true }), options),
    previewCsv: async (csv, { mode, ...options } = {}) =>
      post<BatchPreview>(await csvBody(csv), queryOf({ mode, validate_only: true }), options),
    retrieve,
    list: (params, options) => listOf<Batch>(send, '/v1/batches', params, options),
    payouts: (id, params, options) =>
      listOf<Payout>(send, `${pathOf(id)}/payouts`, params, options),
    wait: async (id, options = {}) => {
      const startedMs = Date.now();
      const { signal } = options;
      const read = () => retrieve(id, { signal, maxRetries: readRetries });
      const isFinal = ({ completed_at }: Batch) => completed_at !== null;
      const first = await retrieve(id, { signal });
      return untilFinal(first, { isFinal, read }, { ...options, startedMs });
    },
    cancel: (id, options = {}) =>
      send<CanceledBatch>(
        { method: 'POST', path: `${pathOf(id)}/cancel`, idempotencyKey: keyOf(options) },
        options,
      ),
  };
}

function pathOf(id: string): string {
  return `/v1/batches/${encodeURIComponent(id)}`;
}
