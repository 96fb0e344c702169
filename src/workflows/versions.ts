/**
 * Every change of a workflow that open runs may not take: a run that passed its place before
 * the change keeps the old way. A marker goes when no run that old can be open, a payout's
 * longest wait after the release that brought it; test/replay shows what still replays.
 */
export const changes = {
  /** A batch is carried in chunks; before, it started a workflow for each of its payouts. */
  batchInChunks: 'batch-in-chunks',
} as const;
