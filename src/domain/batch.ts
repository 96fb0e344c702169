/** The specification's limit. */
export const maximumBatchItems = 10_000;

/**
 * Items that are carried together: as many as a bulk request of the rail takes. Measured,
 * smaller groups cost more Temporal and larger ones hold the balance's lock for longer.
 */
export const chunkSize = 500;

/** A stretch of a batch, in the order of its request: items from 500 × number on. */
export type Chunk = { readonly batchId: string; readonly number: number };

/** The chunk that an item belongs to, by its place in the request. */
export function chunkNumberOf(index: number): number {
  return Math.floor(index / chunkSize);
}

/** The chunks of a batch of so many items. */
export function chunkCountOf(total: number): number {
  return Math.ceil(total / chunkSize);
}

/** The id of the workflow that carries a chunk, which is the driver of its payouts. */
export function chunkDriver({ batchId, number }: Chunk): string {
  return `${batchId}/${number}`;
}

/** All items are decided one by one, or they are debited together or not at all. */
export const batchModes = ['best_effort', 'all_or_nothing'] as const;
export type BatchMode = (typeof batchModes)[number];

export const batchStatuses = ['processing', 'completed', 'canceled'] as const;
export type BatchStatus = (typeof batchStatuses)[number];
