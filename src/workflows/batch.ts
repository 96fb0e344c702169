import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import {
  allHandlersFinished,
  condition,
  log,
  ParentClosePolicy,
  setHandler,
  startChild,
  workflowInfo,
} from '@temporalio/workflow';
import { type Chunk, type ChunkCounts, chunkDriver, isOpen } from '../domain/batch.js';
import type { batchChunk } from './batchChunk.js';
import { type BatchInput, cancelBatchUpdate, searchAttributes } from './messages.js';
import { batchLedger, isTooLong } from './proxies.js';

/**
 * A batch, until every item is decided: group by group in the order of the request, so that of
 * too many items the same are refused each time. Accepted items belong to the workflow of their
 * chunk at once, and the transaction that makes the last item final completes the batch.
 * It works from the rows, so it may be started at any moment and any number of times.
 */
export async function batch({ batchId }: BatchInput): Promise<void> {
  let requested = 0;
  let canceled = 0;
  setHandler(
    cancelBatchUpdate,
    async () => {
      requested += 1;
      const number = requested;
      await condition(() => canceled >= number);
    },
    { description: 'Cancels what the rail has not been given; the row says so already.' },
  );
  const { chunks, mode } = await batchLedger.readBatch({ batchId });
  if (mode === 'all_or_nothing') await batchLedger.decideBatch(aged(batchId));
  for (let number = 0; number < chunks; number += 1) await begin({ batchId, number });
  await batchLedger.closeEmptyBatch({ batchId });
  do {
    const upTo = requested;
    // One pass cancels everything: later requests of a run that has become long join it.
    if (upTo > canceled && !(canceled > 0 && isTooLong())) await cancelAll(batchId, chunks);
    canceled = upTo;
    await condition(() => requested > canceled || allHandlersFinished());
  } while (requested > canceled);
}

/** How long the batch has waited for its decisions, by the server's clock alone. */
function aged(batchId: string) {
  return { batchId, workflowAgeMs: Date.now() - workflowInfo().startTime.getTime() };
}

/** Decides a chunk and starts the workflow of what was accepted. */
async function begin(chunk: Chunk): Promise<void> {
  const progress = await decideChunk(chunk);
  if (!isOpen(progress)) return;
  try {
    await startChild<typeof batchChunk>('batchChunk', {
      workflowId: chunkDriver(chunk),
      args: [chunk],
      // The chunk outlives its batch's workflow, which ends when everything is decided.
      parentClosePolicy: ParentClosePolicy.ABANDON,
      workflowTaskTimeout: '5s',
      typedSearchAttributes: [{ key: searchAttributes.batchId, value: chunk.batchId }],
    });
  } catch (error) {
    // An earlier run or an event of the rail has started it: it works from the rows as well.
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
  }
}

async function decideChunk(chunk: Chunk): Promise<ChunkCounts> {
  try {
    const { workflowAgeMs } = aged(chunk.batchId);
    return await batchLedger.acceptChunk({ ...chunk, workflowAgeMs });
  } catch (error) {
    // A bug that one item brings to light must not hold up the others: each goes its
    // own way, and those that cannot are parked for a person.
    log.error('a chunk could not be decided as one', { ...chunk, error });
    return batchLedger.handOverChunk({ ...chunk, scope: 'all' });
  }
}

/**
 * Cancels chunk by chunk; what was given to the rail goes on. A bug that keeps one of them from
 * it must not hold up the others; then it fails the batch, so that the caller gets an error.
 */
async function cancelAll(batchId: string, chunks: number): Promise<void> {
  const failures: unknown[] = [];
  for (let number = 0; number < chunks; number += 1) {
    const chunk = { batchId, number };
    try {
      await batchLedger.cancelChunk(chunk);
    } catch (error) {
      log.error('a chunk could not be canceled', { ...chunk, error });
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
}
