/** The specification's limit. */
export const maximumBatchItems = 10_000;

/** Items that one workflow processes. Measured: 500 cost twice as much of Temporal's time. */
export const chunkSize = 1_000;

/**
 * Items that one transaction writes, and one bulk request of the rail takes. Measured: 1,000
 * hold the balance until single payouts beside them wait half as long again.
 */
export const groupSize = 500;

/** A list in groups, in its order. */
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

/** A stretch of a batch, in the order of its request: items from 1,000 × number on. */
export type Chunk = { readonly batchId: string; readonly number: number };

/** The chunk that an item belongs to, by its place in the request. */
export function chunkNumberOf(index: number): number {
  return Math.floor(index / chunkSize);
}

/** How many chunks a batch has. */
export function chunkCountOf(total: number): number {
  return Math.ceil(total / chunkSize);
}

/** The id of the workflow that processes a chunk, which is the driver of its payouts. */
export function chunkDriver({ batchId, number }: Chunk): string {
  return `${batchId}/${number}`;
}

/** What people read of a chunk. */
export function chunkSummary({ batchId, number }: Chunk): string {
  return `Payouts from number ${number * chunkSize + 1} on of batch ${batchId}`;
}

/** Where the payouts of a chunk stand that its workflow still drives. */
export type ChunkCounts = {
  /** Not decided yet: that is the batch's own workflow's to do. */
  readonly pending: number;
  /** Accepted, and never given to the rail. */
  readonly unsent: number;
  /** Given to the rail, which has not said what became of it. */
  readonly unanswered: number;
  /** Those of the unanswered that have been so for longer than a rail may take. */
  readonly overdue: number;
  readonly sent: number;
  /** For a person, or silent beyond the rail's own time: its own workflow takes it over. */
  readonly stuck: number;
};

/** Whether something of the chunk has still to be moved by its own workflow. */
export function isOpen({ unsent, unanswered, sent, stuck }: ChunkCounts): boolean {
  return unsent + unanswered + sent + stuck > 0;
}

/** All items are decided one by one, or they are debited together or not at all. */
export const batchModes = ['best_effort', 'all_or_nothing'] as const;
export type BatchMode = (typeof batchModes)[number];

export const batchStatuses = ['processing', 'completed', 'canceled'] as const;
export type BatchStatus = (typeof batchStatuses)[number];
