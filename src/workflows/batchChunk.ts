import { condition, continueAsNew, log, setHandler, workflowInfo } from '@temporalio/workflow';
import type { ChunkProgress } from '../activities/chunk.js';
import { type Chunk, isOpen } from '../domain/batch.js';
import { type BatchChunkInput, railUpdateSignal } from './messages.js';
import { batchLedger, batchRail, batchWebhooks } from './proxies.js';

/** Half a minute of looks of five seconds each, while the rail owes an answer. */
const looks = 6;

/** After that the chunk holds no slot: it is woken by news, or asks the rail itself. */
const firstPauseMs = 10_000;
const longestPauseMs = 15 * 60_000;

/**
 * The payouts of a chunk, from the rail to their last delivered event, together. What waits for
 * a person, or for an answer that does not come, gets a workflow of its own. It works from the
 * rows, so it may be started at any moment and any number of times; it ends when nothing of the
 * chunk is open, and starts again with the next news.
 */
export async function batchChunk({ hasSubscribers, ...chunk }: BatchChunkInput): Promise<void> {
  let nudged = false;
  setHandler(
    railUpdateSignal,
    () => {
      nudged = true;
    },
    { description: 'Look at the rows and the inbox again; carries no data.' },
  );
  const deliverer = createDeliverer(chunk);
  deliverer.take({ hasSubscribers });
  let pauseMs = firstPauseMs;
  for (;;) {
    nudged = false;
    const look = await carry(chunk, deliverer);
    if (!isOpen(look)) {
      // News do not wait until the last slow receiver has been told of the old ones.
      await Promise.race([deliverer.done(), condition(() => nudged)]);
      if (!nudged && !deliverer.isOwed()) return;
    } else if (await batchLedger.suspendChunk({ ...chunk, forMs: pauseMs })) {
      const isTimeUp = !(await condition(() => nudged, pauseMs));
      // What the rail has not answered is asked about at the same pace: in ten minutes it is
      // handed over, and a rail that is back must not be left waiting for as long as it was away.
      const isSlower = isTimeUp && look.unanswered === 0;
      pauseMs = isSlower ? Math.min(pauseMs * 2, longestPauseMs) : firstPauseMs;
      if (isTimeUp) await poll(chunk, deliverer);
    }
    if (isTooLong() && deliverer.isIdle()) {
      await continueAsNew<typeof batchChunk>({ ...chunk, hasSubscribers: deliverer.isOwed() });
    }
  }
}

/** Looks that change nothing, and runs for slow receivers, fill the history. */
function isTooLong(): boolean {
  return workflowInfo().continueAsNewSuggested;
}

/** Gives the rail what it has not, and takes what it says for half a minute. */
async function carry(chunk: Chunk, deliverer: Deliverer): Promise<ChunkProgress> {
  await submit(chunk, deliverer);
  let look = await settle(chunk, deliverer);
  for (let round = 1; round < looks; round += 1) {
    // Also when the submission itself has failed: a person may have to ask the rail.
    if (look.overdue > 0) await batchLedger.handOverChunk({ ...chunk, scope: 'unanswered' });
    else if (look.troubled > 0) await batchLedger.handOverChunk({ ...chunk, scope: 'troubled' });
    else if (look.unanswered > 0) await submit(chunk, deliverer);
    else if (look.sent === 0) return look;
    look = await settle(chunk, deliverer);
  }
  return look;
}

/** Nothing is lost when it fails: what the rail has not answered is looked up by the next run. */
async function submit(chunk: Chunk, deliverer: Deliverer): Promise<void> {
  try {
    const look = await batchRail.submitChunk(chunk);
    deliverer.take(look);
    if (look.overdue === 0) return;
  } catch (error) {
    log.warn('a chunk could not be submitted', { ...chunk, error });
    return;
  }
  // The rail answers, but not what became of these: a person may have to ask it.
  await batchLedger.handOverChunk({ ...chunk, scope: 'unanswered' });
}

async function settle(chunk: Chunk, deliverer: Deliverer): Promise<ChunkProgress> {
  try {
    const look = await batchLedger.settleChunk(chunk);
    deliverer.take(look);
    return look;
  } catch (error) {
    // A bug that one payout brings to light must not hold up the others: each goes its
    // own way, and those that cannot are parked for a person.
    log.error('a chunk could not be settled as one', { ...chunk, error });
    return batchLedger.handOverChunk({ ...chunk, scope: 'all' });
  }
}

async function poll(chunk: Chunk, deliverer: Deliverer): Promise<void> {
  try {
    deliverer.take(await batchRail.pollChunk(chunk));
  } catch (error) {
    log.warn('the rail did not answer the poll of a chunk', { ...chunk, error });
  }
}

type Deliverer = ReturnType<typeof createDeliverer>;

/**
 * Delivers what the chunk's events owe, one run at a time, beside everything else. What is left
 * of a workflow that has become long is its next run's to tell.
 */
function createDeliverer(chunk: Chunk) {
  let isOwed = false;
  let running: Promise<void> | undefined;
  async function run(): Promise<void> {
    while (isOwed && !isTooLong()) {
      isOwed = false;
      try {
        isOwed = (await batchWebhooks.deliverChunk(chunk)) || isOwed;
      } catch (error) {
        // Nothing is lost: the deliveries stay due, and the sweep hands them to the endpoint.
        log.warn('the first deliveries did not finish', { ...chunk, error });
      }
    }
    running = undefined;
  }
  return {
    take: ({ hasSubscribers }: { readonly hasSubscribers: boolean }): void => {
      isOwed ||= hasSubscribers;
      if (isOwed && !isTooLong()) running ??= run();
    },
    isOwed: (): boolean => isOwed,
    isIdle: (): boolean => running === undefined,
    done: async (): Promise<void> => {
      await running;
    },
  };
}
