import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common';
import {
  allHandlersFinished,
  condition,
  continueAsNew,
  log,
  ParentClosePolicy,
  setCurrentDetails,
  setHandler,
  startChild,
  workflowInfo,
} from '@temporalio/workflow';
import { type Chunk, chunkDriver, chunkSummary, isOpen } from '../domain/batch.js';
import type { batchChunk } from './batchChunk.js';
import {
  type BatchInput,
  cancelBatchUpdate,
  railUpdateSignal,
  searchAttributes,
} from './messages.js';
import { batchLedger, orHandOver, shouldContinueAsNew } from './proxies.js';

/**
 * Pause between two reads of the progress. A batch normally ends in seconds, but one that waits for a
 * bank takes days: the pause doubles each time, because each read costs ten history events. The end of
 * a chunk, or of an item with its own workflow, triggers a read at once.
 */
const firstPauseMs = 5_000;
const longestPauseMs = 60 * 60_000;

/** The state of a run of the workflow. */
type BatchRun = {
  readonly batchId: string;
  /** How many cancellations were requested, and how many of them are done. */
  requested: number;
  canceled: number;
  isSignaled: boolean;
};

/**
 * Runs a batch until every item is final. Items are decided group by group in the order of the request,
 * so that if the funds do not cover all, the same items are refused each time. Accepted items belong to
 * their chunk's workflow at once. The transaction that makes the last item final completes the batch
 * (`completeBatches` in db/batches.ts); this workflow waits for that only to display it.
 * It works from the rows, so it may be started at any moment and any number of times.
 */
export async function batch({ batchId }: BatchInput): Promise<string> {
  const run: BatchRun = { batchId, requested: 0, canceled: 0, isSignaled: false };
  setHandler(
    cancelBatchUpdate,
    async () => {
      run.requested += 1;
      const number = run.requested;
      await condition(() => run.canceled >= number);
    },
    { description: 'Cancels what the rail has not been given; the row says so already.' },
  );
  setHandler(railUpdateSignal, () => signal(run), {
    description: 'Look at the rows again; carries no data.',
  });
  const { chunks, mode } = await look(batchId);
  if (mode === 'all_or_nothing') await batchLedger.decideBatch(aged(batchId));
  await beginAll(run, chunks);
  await batchLedger.closeEmptyBatch({ batchId });
  return untilOver(run, chunks);
}

/** Waits until the batch is over. Meanwhile cancels items on request, and displays the progress. */
async function untilOver(run: BatchRun, chunks: number): Promise<string> {
  const { batchId } = run;
  for (let pauseMs = firstPauseMs; ; ) {
    const upTo = run.requested;
    // One pass cancels everything, so in a run with a long history later requests need no other pass.
    if (upTo > run.canceled && !(run.canceled > 0 && shouldContinueAsNew()))
      await cancelAll(batchId, chunks);
    run.canceled = upTo;
    run.isSignaled = false;
    const { isOver, isUndecided, progress } = await look(batchId);
    // A worker that was stopped may have left items undecided.
    if (isUndecided) await beginAll(run, chunks);
    if (isOver) {
      await condition(() => hasOpenRequest(run) || allHandlersFinished());
      if (!hasOpenRequest(run)) return progress;
    } else {
      const options = { summary: 'Until its progress is checked again' };
      await condition(() => hasOpenRequest(run) || run.isSignaled, pauseMs, options);
      pauseMs = Math.min(pauseMs * 2, longestPauseMs);
      if (shouldContinueAsNew() && !hasOpenRequest(run) && allHandlersFinished()) {
        await continueAsNew<typeof batch>({ batchId });
      }
    }
  }
}

/** Whether a cancellation was requested and is not done. */
function hasOpenRequest({ requested, canceled }: BatchRun): boolean {
  return requested > canceled;
}

function signal(run: BatchRun): void {
  run.isSignaled = true;
}

/** Reads the progress of the batch, and shows it to operators. */
async function look(batchId: string) {
  const plan = await batchLedger.readBatch({ batchId });
  setCurrentDetails(`${plan.progress}\n\nMore: \`corridor batches show ${batchId}\``);
  return plan;
}

async function beginAll(run: BatchRun, chunks: number): Promise<void> {
  for (let number = 0; number < chunks; number += 1) {
    await begin(run, { batchId: run.batchId, number });
  }
}

/** The batch, and how long it has waited for its decisions, measured by the server's clock only. */
function aged(batchId: string) {
  return { batchId, workflowAgeMs: Date.now() - workflowInfo().startTime.getTime() };
}

/** Decides a chunk and starts the workflow that processes its accepted items. */
async function begin(run: BatchRun, chunk: Chunk): Promise<void> {
  const { workflowAgeMs } = aged(chunk.batchId);
  const progress = await orHandOver(chunk, 'a chunk could not be decided as one', () =>
    batchLedger.acceptChunk({ ...chunk, workflowAgeMs }),
  );
  if (!isOpen(progress)) return;
  try {
    const child = await startChild<typeof batchChunk>('batchChunk', {
      workflowId: chunkDriver(chunk),
      staticSummary: chunkSummary(chunk),
      args: [chunk],
      // Terminating a batch must not terminate its chunks.
      parentClosePolicy: ParentClosePolicy.ABANDON,
      workflowTaskTimeout: '5s',
      typedSearchAttributes: [{ key: searchAttributes.batchId, value: chunk.batchId }],
    });
    const end = () => signal(run);
    child.result().then(end, end);
  } catch (error) {
    // Already started by an earlier run or an event of the rail: that run works from the same rows.
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
  }
}

/**
 * Cancels chunk by chunk; items that the rail already has continue. A bug in one chunk must not
 * hold up the others. It fails the batch afterwards, so that the caller gets an error.
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
