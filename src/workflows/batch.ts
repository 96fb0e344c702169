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
import {
  type Chunk,
  type ChunkCounts,
  chunkDriver,
  chunkSummary,
  isOpen,
} from '../domain/batch.js';
import type { batchChunk } from './batchChunk.js';
import {
  type BatchInput,
  cancelBatchUpdate,
  railUpdateSignal,
  searchAttributes,
} from './messages.js';
import { batchLedger, isTooLong } from './proxies.js';

/**
 * A batch that just runs is over in seconds, one that waits for a bank in days: its progress is looked
 * at less and less often, for each look costs ten events. The end of a chunk, or of an item that had
 * a workflow of its own, makes it look at once.
 */
const firstPauseMs = 5_000;
const longestPauseMs = 60 * 60_000;

/** What a run of the workflow remembers. */
type BatchRun = {
  readonly batchId: string;
  /** How many cancellations were requested, and how many of them are done. */
  requested: number;
  canceled: number;
  isSignaled: boolean;
};

/**
 * A batch, until every item has come to its end: decided group by group in the order of the request, so
 * that of too many items the same are refused each time. Accepted items belong to the workflow of their
 * chunk at once, and the transaction that makes the last item final completes the batch; this
 * workflow waits for that only to show it.
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

/** Waits until the batch is over, cancels on request meanwhile, and shows how far it is. */
async function untilOver(run: BatchRun, chunks: number): Promise<string> {
  const { batchId } = run;
  for (let pauseMs = firstPauseMs; ; ) {
    const upTo = run.requested;
    // One pass cancels everything: later requests of a run that has become long join it.
    if (upTo > run.canceled && !(run.canceled > 0 && isTooLong())) await cancelAll(batchId, chunks);
    run.canceled = upTo;
    run.isSignaled = false;
    const { isOver, isUndecided, progress } = await look(batchId);
    // What a worker has left undecided when it was stopped.
    if (isUndecided) await beginAll(run, chunks);
    if (isOver) {
      await condition(() => isAsked(run) || allHandlersFinished());
      if (!isAsked(run)) return progress;
    } else {
      const options = { summary: 'Until its progress is looked at again' };
      await condition(() => isAsked(run) || run.isSignaled, pauseMs, options);
      pauseMs = Math.min(pauseMs * 2, longestPauseMs);
      if (isTooLong() && !isAsked(run) && allHandlersFinished()) {
        await continueAsNew<typeof batch>({ batchId });
      }
    }
  }
}

function isAsked({ requested, canceled }: BatchRun): boolean {
  return requested > canceled;
}

function signal(run: BatchRun): void {
  run.isSignaled = true;
}

/** Reads how far the batch is, and shows it to operators. */
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

/** How long the batch has waited for its decisions, by the server's clock alone. */
function aged(batchId: string) {
  return { batchId, workflowAgeMs: Date.now() - workflowInfo().startTime.getTime() };
}

/** Decides a chunk and starts the workflow of what was accepted. */
async function begin(run: BatchRun, chunk: Chunk): Promise<void> {
  const progress = await decideChunk(chunk);
  if (!isOpen(progress)) return;
  try {
    const child = await startChild<typeof batchChunk>('batchChunk', {
      workflowId: chunkDriver(chunk),
      staticSummary: chunkSummary(chunk),
      args: [chunk],
      // A terminated batch takes no chunk with it.
      parentClosePolicy: ParentClosePolicy.ABANDON,
      workflowTaskTimeout: '5s',
      typedSearchAttributes: [{ key: searchAttributes.batchId, value: chunk.batchId }],
    });
    const end = () => signal(run);
    child.result().then(end, end);
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
 * Cancels chunk by chunk; what was given to the rail continues. A bug that keeps one of them from
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
