import type { Client } from '@temporalio/client';
import { pendingItems } from '../db/batches.js';
import type { Database } from '../db/client.js';
import { wakePayouts } from '../temporal/wakePayout.js';

export type BatchDeps = { readonly database: Database; readonly temporal: Client };
export type StartItemsInput = { readonly batchId: string; readonly afterIndex: number };

/** The activities of a batch. */
export function batchActivities({ database, temporal }: BatchDeps) {
  return {
    /**
     * Starts the workflows of the next pending items, in the order of the request. Answers the
     * index of the last one, null when none is left. What could not be started is due for the
     * sweep, so it holds nobody up.
     */
    startItems: async ({ batchId, afterIndex }: StartItemsInput): Promise<number | null> => {
      const items = await pendingItems(database, batchId, afterIndex);
      await wakePayouts(temporal, items);
      return items.at(-1)?.batchIndex ?? null;
    },
  };
}
