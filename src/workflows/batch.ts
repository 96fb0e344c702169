import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import {
  allHandlersFinished,
  condition,
  continueAsNew,
  log,
  ParentClosePolicy,
  setHandler,
  startChild,
  workflowInfo,
} from '@temporalio/workflow';
import type { ChunkProgress } from '../activities/chunk.js';
import { type Chunk, chunkDriver, isOpen } from '../domain/batch.js';
import type { batchChunk } from './batchChunk.js';
import { type BatchInput, cancelBatchUpdate, searchAttributes } from './messages.js';
import { batchLedger, deliverChunk, deliverEvents, isTooLong } from './proxies.js';

/**
 * A batch, until every item is decided: group by group in the order of the request, so that of
 * too many items the same are refused each time. Accepted items belong to the workflow of their
 * chunk at once, and the transaction that makes the last item final completes the batch.
 * It works from the rows, so it may be started at any moment and any number of times.
 */
export async function batch({ batchId, undelivered }: BatchInput): Promise<void> {
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
  let delivering = 0;
  // A cancellation must not wait for receivers that are slow.
  const inBackground = (delivery: Promise<void>) => {
    delivering += 1;
    void delivery.finally(() => {
      delivering -= 1;
    });
  };
  const left = new Set(undelivered);
  const deliverItems = async (number: number) => {
    left.add(number);
    if (await isDelivered({ batchId, number })) left.delete(number);
  };
  if (undelivered === undefined) {
    if (mode === 'all_or_nothing') {
      if (await batchLedger.decideBatch(aged(batchId))) inBackground(deliverEvents(batchId));
    }
    for (let number = 0; number < chunks; number += 1) await begin({ batchId, number });
    if (await batchLedger.closeEmptyBatch({ batchId })) inBackground(deliverEvents(batchId));
  }
  for (const number of left) inBackground(deliverItems(number));
  do {
    const upTo = requested;
    // One pass cancels everything: later requests of a run that has become long join it.
    if (upTo > canceled && !(canceled > 0 && isTooLong())) {
      for (const number of await cancelAll(batchId, chunks)) inBackground(deliverItems(number));
    }
    canceled = upTo;
    await condition(() => requested > canceled || (delivering === 0 && allHandlersFinished()));
  } while (requested > canceled);
  if (left.size > 0) await continueAsNew<typeof batch>({ batchId, undelivered: [...left] });
}

/** How long the batch has waited for its decisions, by the server's clock alone. */
function aged(batchId: string) {
  return { batchId, workflowAgeMs: Date.now() - workflowInfo().startTime.getTime() };
}

/** Decides a chunk and starts the workflow of what was accepted. */
async function begin(chunk: Chunk): Promise<void> {
  const progress = await decideChunk(chunk);
  if (!isOpen(progress) && !progress.hasPendingDeliveries) return;
  try {
    await startChild<typeof batchChunk>('batchChunk', {
      workflowId: chunkDriver(chunk),
      args: [{ ...chunk, hasPendingDeliveries: progress.hasPendingDeliveries }],
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

async function decideChunk(chunk: Chunk): Promise<ChunkProgress> {
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
 * Returns the chunks that have events to deliver.
 */
async function cancelAll(batchId: string, chunks: number): Promise<readonly number[]> {
  const subscribed: number[] = [];
  const failures: unknown[] = [];
  for (let number = 0; number < chunks; number += 1) {
    const chunk = { batchId, number };
    try {
      if (await batchLedger.cancelChunk(chunk)) subscribed.push(number);
    } catch (error) {
      log.error('a chunk could not be canceled', { ...chunk, error });
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
  return subscribed;
}

/** Delivers the chunk's events; false when a new run of the workflow has to continue. */
async function isDelivered(chunk: Chunk): Promise<boolean> {
  // 1,000 events to each of 16 endpoints that answer slowly are minutes of runs of 20 s.
  for (let run = 0; run < 100 && (await deliverChunk(chunk)); run += 1) {
    if (isTooLong()) return false;
  }
  return true;
}
