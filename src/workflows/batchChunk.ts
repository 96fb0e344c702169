import { condition, continueAsNew, log } from '@temporalio/workflow';
import { type Chunk, type ChunkCounts, isOpen } from '../domain/batch.js';
import { flagOf } from './commands.js';
import { railUpdateSignal } from './messages.js';
import { batchLedger, batchRail, orHandOver, shouldContinueAsNew } from './proxies.js';

/** Rounds of five seconds each, half a minute in all, while answers of the rail are pending. */
const rounds = 6;

/** Pause after those rounds. The chunk then holds no activity slot: an event wakes it, or it polls. */
const firstPauseMs = 10_000;
const longestPauseMs = 15 * 60_000;

/**
 * Processes the payouts of a chunk together, from submission to their final status. A payout that
 * needs an operator, or whose answer does not come, gets its own workflow. This workflow works from the
 * rows, so it may be started at any moment and any number of times. It ends when nothing of the chunk
 * is open, and the next event of the rail starts it again.
 */
export async function batchChunk(chunk: Chunk): Promise<void> {
  const signal = flagOf(railUpdateSignal, 'Look at the rows and the inbox again; carries no data.');
  let pauseMs = firstPauseMs;
  for (;;) {
    signal.isUp = false;
    const progress = await processChunk(chunk);
    if (!isOpen(progress)) {
      if (!signal.isUp) return;
    } else if (await batchLedger.suspendChunk({ ...chunk, forMs: pauseMs })) {
      const isTimeUp = !(await condition(() => signal.isUp, pauseMs));
      // While payouts are unanswered the pause does not grow: they are handed over after ten
      // minutes, and a rail that has recovered is polled soon.
      const isSlower = isTimeUp && progress.unanswered === 0;
      pauseMs = isSlower ? Math.min(pauseMs * 2, longestPauseMs) : firstPauseMs;
      if (isTimeUp) await poll(chunk);
    }
    if (shouldContinueAsNew()) await continueAsNew<typeof batchChunk>(chunk);
  }
}

/** Submits the payouts that the rail does not have yet, and applies its events for half a minute. */
async function processChunk(chunk: Chunk): Promise<ChunkCounts> {
  await submit(chunk);
  let progress = await applyEvents(chunk);
  for (let round = 1; round < rounds; round += 1) {
    // Also after a failed submission: a person may have to contact the rail.
    if (progress.overdue > 0) await batchLedger.handOverChunk({ ...chunk, scope: 'unanswered' });
    else if (progress.stuck > 0) await batchLedger.handOverChunk({ ...chunk, scope: 'stuck' });
    else if (progress.unanswered > 0) await submit(chunk);
    else if (progress.sent === 0) return progress;
    progress = await applyEvents(chunk);
  }
  return progress;
}

/** Submits the chunk. A failure loses nothing: the next run looks up payouts without an answer. */
async function submit(chunk: Chunk): Promise<void> {
  try {
    const progress = await batchRail.submitChunk(chunk);
    if (progress.overdue === 0) return;
  } catch (error) {
    log.warn('a chunk could not be submitted', { ...chunk, error });
    return;
  }
  // The rail answers, but has no outcome for these payouts: a person may have to contact it.
  await batchLedger.handOverChunk({ ...chunk, scope: 'unanswered' });
}

const applyEvents = (chunk: Chunk) =>
  orHandOver(chunk, 'a chunk could not be settled as one', () =>
    batchLedger.applyChunkEvents(chunk),
  );

async function poll(chunk: Chunk): Promise<void> {
  try {
    await batchRail.pollChunk(chunk);
  } catch (error) {
    log.warn('the rail did not answer the poll of a chunk', { ...chunk, error });
  }
}
