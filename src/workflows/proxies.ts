import {
  ActivityCancellationType,
  log,
  proxyActivities,
  proxyLocalActivities,
  workflowInfo,
} from '@temporalio/workflow';
import type { Activities } from '../activities/index.js';
import type { Chunk, ChunkCounts } from '../domain/batch.js';
import { taskQueues } from './messages.js';

/**
 * Activities, grouped by effect. Ledger steps are one transaction and safe to repeat. Steps that move
 * money at the rail repeat only what the row allows. Rail reads and webhook deliveries may fail
 * safely. Each pause between retries is twice the one before.
 */

type LedgerActivities = Pick<Activities, 'decidePayouts' | 'applyRailEvents' | 'parkPayout'>;

/** Run in the worker of the workflow task, which saves the server a separate state transition. */
const localLedger = proxyLocalActivities<LedgerActivities>({
  summary: 'Reads or writes the row and the ledger, in one transaction',
  startToCloseTimeout: 2_000,
  // The workflow task ends after 5 s; then the same function is retried as a regular activity.
  scheduleToCloseTimeout: 5_000,
  retry: { initialInterval: 50, backoffCoefficient: 2, maximumAttempts: 5 },
});

/** The same functions as regular activities, retried until the database is back after an outage. */
const retryingLedger = proxyActivities<LedgerActivities>({
  summary: 'Reads or writes the row and the ledger, until the database is back',
  taskQueue: taskQueues.payouts,
  startToCloseTimeout: 8_000,
  retry: { initialInterval: 1_000, maximumInterval: 30_000 },
});

/** Runs a ledger step locally, and as a regular activity once the local attempts are used up. */
export async function ledgerStep<T>(
  step: (ledger: typeof retryingLedger) => Promise<T>,
): Promise<T> {
  try {
    return await step(localLedger);
  } catch {
    // Whatever the error was, retry as a regular activity, whose attempts and failures are visible.
    return step(retryingLedger);
  }
}

/** The rail has 5 s to answer a lookup and 5 s to answer the call that may follow. */
const submitLimitMs = 10_000;

/** A single attempt in the worker of the workflow task. If that worker is killed, another repeats the task. */
export const localSubmit = proxyLocalActivities<Pick<Activities, 'submitPayouts'>>({
  summary: 'Sends the order to the bank',
  startToCloseTimeout: submitLimitMs,
  retry: { maximumAttempts: 1 },
});

export const railSubmit = proxyActivities<Pick<Activities, 'submitPayouts'>>({
  summary:
    'Sends the order to the bank; without an answer, looks it up and retries under the same key',
  taskQueue: taskQueues.rail,
  // An attempt that ends too late is repeated as its row requires, under the same key. A missing
  // heartbeat reveals a killed worker.
  startToCloseTimeout: submitLimitMs,
  heartbeatTimeout: 4_000,
  cancellationType: ActivityCancellationType.TRY_CANCEL,
  retry: { initialInterval: 1_000, maximumInterval: 5 * 60_000 },
});

/** Commands of people, who wait for the answer: retries for an unresponsive rail end soon. */
const command = {
  // Covers a void, a lookup and up to two months of statements. A missing heartbeat reveals a
  // killed worker.
  startToCloseTimeout: 60_000,
  heartbeatTimeout: 4_000,
  retry: { initialInterval: 1_000, maximumAttempts: 5 },
} as const;

export const operation = proxyActivities<Pick<Activities, 'executeCommand'>>({
  ...command,
  summary: "Executes an operator's command",
  // Not the rail's queue: a thousand calls that the rail does not answer must not keep people from
  // resolving them.
  taskQueue: taskQueues.payouts,
});

/** Customers may cancel thousands of payouts while the rail does not answer: operators do not wait for those. */
export const cancellation = proxyActivities<Pick<Activities, 'executeCommand'>>({
  ...command,
  summary: 'Cancels the payout for the customer',
  taskQueue: taskQueues.cancellations,
  // The API answers after 10 s that the payout may still be canceled. If only workers of an earlier release are
  // left, none takes the task, and it must not hold up the payout.
  scheduleToStartTimeout: 15_000,
});

/** Polls begin a minute apart and end an hour apart: a silent rail tends to stay silent. */
const pollRetry = { initialInterval: 60_000, maximumInterval: 60 * 60_000 } as const;

/** Polls the rail by one pending activity: its retries are the polls, and add no history events. */
export function railPoll(settleInMs: number): Pick<Activities, 'pollRail'> {
  // If the rail's time is minutes, as in a rehearsal, polling must not last an hour longer.
  const longestMs = Math.max(pollRetry.initialInterval, settleInMs);
  const maximumInterval = Math.min(pollRetry.maximumInterval, longestMs);
  return proxyActivities<Pick<Activities, 'pollRail'>>({
    summary: 'Polls the bank until it reports the outcome of the order',
    taskQueue: taskQueues.rail,
    startToCloseTimeout: 10_000,
    // The server gives up when the next attempt would come too late. With one more pause, the last
    // poll comes when the rail's time is over, and not an hour before.
    scheduleToCloseTimeout: settleInMs + maximumInterval,
    cancellationType: ActivityCancellationType.TRY_CANCEL,
    retry: { ...pollRetry, maximumInterval },
  });
}

/** An attempt begins within 4 s and takes at most 15 s. A missing heartbeat reveals a killed worker. */
export const retryDeliveries = proxyActivities<Pick<Activities, 'deliverDue'>>({
  summary: 'Sends the webhooks that are due',
  taskQueue: taskQueues.webhooks,
  startToCloseTimeout: 25_000,
  heartbeatTimeout: 4_000,
  // Retried until the database is back: nothing else retries these deliveries.
  retry: { initialInterval: 1_000, maximumInterval: 10_000 },
});

/** A message takes at most 15 s. It is sent only once: the waiting caller can request another. */
export const probes = proxyActivities<Pick<Activities, 'sendProbe'>>({
  summary: 'Sends a challenge or a test',
  taskQueue: taskQueues.webhooks,
  startToCloseTimeout: 20_000,
  retry: { maximumAttempts: 1 },
});

/** Timeouts of steps for whole chunks. A missing heartbeat reveals a killed worker long before a minute. */
const chunkStep = { startToCloseTimeout: 60_000, heartbeatTimeout: 4_000 } as const;

export const batchLedger = proxyActivities<
  Pick<
    Activities,
    | 'readBatch'
    | 'decideBatch'
    | 'acceptChunk'
    | 'cancelChunk'
    | 'closeEmptyBatch'
    | 'applyChunkEvents'
    | 'suspendChunk'
    | 'handOverChunk'
  >
>({
  ...chunkStep,
  summary: 'Reads or writes the rows of a batch',
  taskQueue: taskQueues.batch,
  // Retried until the database is back; a bug fails for good after ten attempts (activities/failure.ts).
  retry: { initialInterval: 1_000, maximumInterval: 10_000 },
});

/**
 * Runs a step for a chunk. A bug triggered by one item must not hold up the others: each then gets its own
 * workflow, and those that fail there are parked for an operator. `failed` is the line in the log.
 */
export async function orHandOver(chunk: Chunk, failed: string, step: () => Promise<ChunkCounts>) {
  try {
    return await step();
  } catch (error) {
    log.error(failed, { ...chunk, error });
    return batchLedger.handOverChunk({ ...chunk, scope: 'all' });
  }
}

export const batchRail = proxyActivities<Pick<Activities, 'submitChunk' | 'pollChunk'>>({
  summary: 'Sends orders to the bank, or looks up their outcome',
  ...chunkStep,
  taskQueue: taskQueues.batchRail,
  // An unreachable rail is called again by the chunk's next pass; callbacks are applied meanwhile.
  retry: { initialInterval: 1_000, maximumAttempts: 4 },
});

/** Whether the history is so long that a new run should continue. Steps that change nothing fill it too. */
export function shouldContinueAsNew(): boolean {
  return workflowInfo().continueAsNewSuggested;
}

/** Sweeps do not overlap, so a heartbeat keeps one whose worker was killed from holding up the next. */
export const sweeper = proxyActivities<Pick<Activities, 'sweep'>>({
  taskQueue: taskQueues.payouts,
  startToCloseTimeout: 30_000,
  heartbeatTimeout: 4_000,
  // Retried until the database is back, and then run as soon as the schedule would.
  retry: { initialInterval: 1_000, maximumInterval: 10_000 },
});

/** Retried until the database, the bank or the rate source is back: the next run may be a day away. */
const untilBack = { initialInterval: 1_000, maximumInterval: 60_000 } as const;

export const maintenance = proxyActivities<Pick<Activities, 'refreshRates' | 'purge'>>({
  taskQueue: taskQueues.payouts,
  startToCloseTimeout: 30_000,
  retry: untilBack,
});

/** These read every posting and statement line. A missing heartbeat reveals a killed worker. */
export const comparison = proxyActivities<Pick<Activities, 'compareBalances' | 'readStatements'>>({
  taskQueue: taskQueues.payouts,
  startToCloseTimeout: 5 * 60_000,
  heartbeatTimeout: 4_000,
  retry: untilBack,
});
