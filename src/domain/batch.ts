// Which items get the remaining balance is decided by `fundInOrder` in domain/acceptance.ts.

/** Maximum number of items in a batch, from the specification. */
export const maximumBatchItems = 10_000;

/** Number of items that one workflow processes. Measured: 500 cost twice as much time in Temporal. */
export const chunkSize = 1_000;

/**
 * Number of items in one transaction and in one bulk request to the rail. Measured: with 1,000, the balance
 * stays locked for so long that concurrent single payouts wait 50 % longer.
 */
export const groupSize = 500;

/** Splits a list into groups, in order. */
export function groupsOf<T>(
  items: readonly T[],
  size: number = groupSize,
): readonly (readonly T[])[] {
  const groups: (readonly T[])[] = [];
  for (let start = 0; start < items.length; start += size) {
    groups.push(items.slice(start, start + size));
  }
  return groups;
}

/** A range of a batch's items in request order: `chunkSize` items, starting at index chunkSize × number. */
export type Chunk = { readonly batchId: string; readonly number: number };

/** Returns the number of the chunk that an item belongs to, by the item's index in the request. */
export function chunkNumberOf(index: number): number {
  return Math.floor(index / chunkSize);
}

/** Returns the number of chunks of a batch. */
export function chunkCountOf(total: number): number {
  return Math.ceil(total / chunkSize);
}

/** Returns the id of the workflow that processes a chunk; it is also the driver of the chunk's payouts. */
export function chunkDriver({ batchId, number }: Chunk): string {
  return `${batchId}/${number}`;
}

/** Returns the description of a chunk for people. */
export function chunkSummary({ batchId, number }: Chunk): string {
  return `Payouts from number ${number * chunkSize + 1} on of batch ${batchId}`;
}

/** Numbers of payouts by progress, among those that the chunk's workflow still drives. */
export type ChunkCounts = {
  /** Not decided yet; the batch's workflow decides them. */
  readonly pending: number;
  /** Accepted, but not submitted to the rail. */
  readonly unsent: number;
  /** Submitted to the rail, without a definite answer yet. */
  readonly unanswered: number;
  /** Unanswered for longer than a rail may take to answer; also counted in `unanswered`. */
  readonly overdue: number;
  readonly sent: number;
  /** Parked for an operator, or past the rail's settlement deadline: the payout's own workflow takes over. */
  readonly stuck: number;
};

/** Whether the chunk's workflow still has accepted payouts to move. */
export function isOpen({ unsent, unanswered, sent, stuck }: ChunkCounts): boolean {
  return unsent + unanswered + sent + stuck > 0;
}

/** `best_effort` decides items one by one; `all_or_nothing` debits all items together or none. */
export const batchModes = ['best_effort', 'all_or_nothing'] as const;
export type BatchMode = (typeof batchModes)[number];

export const batchStatuses = ['processing', 'completed', 'canceled'] as const;
export type BatchStatus = (typeof batchStatuses)[number];
