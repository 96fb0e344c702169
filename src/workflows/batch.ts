import type { BatchInput } from './messages.js';
import { batchStart } from './proxies.js';

/**
 * Starts the payouts of a batch, in the order of the request. Each then goes its own way; the
 * transaction that makes the last one final completes the batch.
 */
export async function batch({ batchId }: BatchInput): Promise<void> {
  let afterIndex: number | null = -1;
  // 10,000 items in runs of 500: at most 21 runs.
  while (afterIndex !== null) {
    afterIndex = await batchStart.startItems({ batchId, afterIndex });
  }
}
