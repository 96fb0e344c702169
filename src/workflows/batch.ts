import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import {
  allHandlersFinished,
  condition,
  continueAsNew,
  log,
  ParentClosePolicy,
  patched,
  setHandler,
  startChild,
  workflowInfo,
} from '@temporalio/workflow';
import type { ChunkProgress } from '../activities/chunk.js';
import { type Chunk, chunkDriver, isOpen } from '../domain/batch.js';
import type { batchChunk } from './batchChunk.js';
import { type BatchInput, cancelBatchUpdate, searchAttributes } from './messages.js';
import { batchLedger, batchStart, batchWebhooks, deliverEvents } from './proxies.js';
import { changes } from './versions.js';

/**
 * A batch, until every item is decided: group by group in the order of the request, so that of
 * too many items the same are refused each time. What was accepted belongs to the workflow of
 * its chunk at once, and the transaction that makes the last item final completes the batch.
 * It works from the rows, so it may be started at any moment and any number of times.
 */
export async function batch({ batchId, untold }: BatchInput): Promise<void> {
  if (!patched(changes.batchInChunks)) return startOneByOne();
  let asked = 0;
  let canceled = 0;
  setHandler(
    cancelBatchUpdate,
    async () => {
      asked += 1;
      const mine = asked;
      await condition(() => canceled >= mine);
    },
    { description: 'Cancels what the rail has not been given; the row says so already.' },
  );
  const { chunks, mode } = await batchLedger.readBatch({ batchId });
  let telling = 0;
  // Beside everything else: whoever cancels must not wait for receivers that are slow.
  const beside = (told: Promise<void>) => {
    telling += 1;
    void told.finally(() => {
      telling -= 1;
    });
  };
  const left = new Set(untold);
  const tellChunk = async (number: number) => {
    left.add(number);
    if (await isTold({ batchId, number })) left.delete(number);
  };
  if (untold === undefined) {
    if (mode === 'all_or_nothing') beside(tell(await batchLedger.decideBatch(aged(batchId))));
    for (let number = 0; number < chunks; number += 1) await begin({ batchId, number });
    beside(tell(await batchLedger.closeEmptyBatch({ batchId })));
  }
  for (const number of left) beside(tellChunk(number));
  do {
    const upTo = asked;
    // One pass cancels all there is: whoever asks a run that has become long is answered by it.
    if (upTo > canceled && !(canceled > 0 && isTooLong())) {
      for (const number of await cancelAll(batchId, chunks)) beside(tellChunk(number));
    }
    canceled = upTo;
    await condition(() => asked > canceled || (telling === 0 && allHandlersFinished()));
  } while (asked > canceled);
  if (left.size > 0) await continueAsNew<typeof batch>({ batchId, untold: [...left] });
}

/** Runs for slow receivers fill the history. */
function isTooLong(): boolean {
  return workflowInfo().continueAsNewSuggested;
}

/** How long the batch has waited for its decisions, by the server's clock alone. */
function aged(batchId: string) {
  return { batchId, workflowAgeMs: Date.now() - workflowInfo().startTime.getTime() };
}

/** Decides a chunk, and hands what was accepted to its workflow. */
async function begin(chunk: Chunk): Promise<void> {
  const look = await decideChunk(chunk);
  if (!isOpen(look) && !look.hasSubscribers) return;
  try {
    await startChild<typeof batchChunk>('batchChunk', {
      workflowId: chunkDriver(chunk),
      args: [{ ...chunk, hasSubscribers: look.hasSubscribers }],
      // The chunk outlives its batch's workflow, which ends when everything is decided.
      parentClosePolicy: ParentClosePolicy.ABANDON,
      workflowTaskTimeout: '5s',
      typedSearchAttributes: [{ key: searchAttributes.batchId, value: chunk.batchId }],
    });
  } catch (error) {
    // It was started by an earlier run, or by news: it works from the rows as well.
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
 * it must not hold up the others, and then fails the batch, so that who has asked hears of it.
 * Returns the chunks that have something to tell.
 */
async function cancelAll(batchId: string, chunks: number): Promise<readonly number[]> {
  const listenedTo: number[] = [];
  const failures: unknown[] = [];
  for (let number = 0; number < chunks; number += 1) {
    const chunk = { batchId, number };
    try {
      if (await batchLedger.cancelChunk(chunk)) listenedTo.push(number);
    } catch (error) {
      log.error('a chunk could not be canceled', { ...chunk, error });
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
  return listenedTo;
}

/** Delivers what the chunk's events owe; false when a new run of the batch has to go on. */
async function isTold(chunk: Chunk): Promise<boolean> {
  try {
    // 1,000 events to each of 16 endpoints that answer slowly are minutes of runs of 20 s.
    for (let run = 0; run < 100 && (await batchWebhooks.deliverChunk(chunk)); run += 1) {
      if (isTooLong()) return false;
    }
  } catch (error) {
    // Nothing is lost: the deliveries stay due, and the sweep hands them to the endpoint.
    log.warn('the first deliveries did not finish', { ...chunk, error });
  }
  return true;
}

/** Tells of the end of the batch by the deliveries of one of its payouts; null is no end yet. */
async function tell(payoutId: string | null): Promise<void> {
  if (payoutId !== null) await deliverEvents(payoutId);
}

/** How batches were begun before there were chunks: in runs of 500 items, at most 21. */
async function startOneByOne(): Promise<void> {
  let afterIndex: number | null = -1;
  while (afterIndex !== null) afterIndex = await batchStart.startItems();
}
