import {
  ActivityCancellationType,
  proxyActivities,
  proxyLocalActivities,
  workflowInfo,
} from '@temporalio/workflow';
import type { Activities } from '../activities/index.js';
import { taskQueues } from './messages.js';

/**
 * Activities by their effect. What writes the ledger is one transaction and may be repeated
 * freely; what moves money at the rail repeats only what the row allows; what reads the rail
 * or delivers a webhook may fail without harm. Each pause between retries is twice the one before.
 */

type LedgerActivities = Pick<Activities, 'decidePayouts' | 'applyRailEvents' | 'parkPayout'>;

/** In the worker that runs the workflow task: no transition of its own. */
const localLedger = proxyLocalActivities<LedgerActivities>({
  summary: 'Reads or writes the row and the ledger, in one transaction',
  startToCloseTimeout: 2_000,
  // The workflow task ends after 5 s; then the same function goes on as a regular activity.
  scheduleToCloseTimeout: 5_000,
  retry: { initialInterval: 50, backoffCoefficient: 2, maximumAttempts: 5 },
});

/** The same functions for when the database is away for longer: until it is back. */
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
    // Whatever it was, it is tried again where every attempt and its failure can be seen.
    return step(retryingLedger);
  }
}

export const railSubmit = proxyActivities<Pick<Activities, 'submitPayouts'>>({
  summary:
    'Gives the order to the bank; what has no answer is asked about again, under the same key',
  taskQueue: taskQueues.rail,
  // The rail has 5 s to answer a look-up and 5 s to answer the call that may follow; an attempt
  // that ends too late is repeated by its row, under the same key. A killed worker shows by its
  // heartbeat.
  startToCloseTimeout: 10_000,
  heartbeatTimeout: 4_000,
  cancellationType: ActivityCancellationType.TRY_CANCEL,
  retry: { initialInterval: 1_000, maximumInterval: 5 * 60_000 },
});

/** What a person asks for: they wait for the answer, so it does not wait for the rail for long. */
export const operation = proxyActivities<Pick<Activities, 'executeCommand'>>({
  summary: 'Executes a command of an operator or of the customer',
  // Not the queue of the rail: a thousand calls that it does not answer must not keep people
  // from resolving them.
  taskQueue: taskQueues.payouts,
  // A void, a look-up, and up to two months of statements; a killed worker shows by its heartbeat.
  startToCloseTimeout: 60_000,
  heartbeatTimeout: 4_000,
  retry: { initialInterval: 1_000, maximumAttempts: 5 },
});

/** Polls begin a minute apart and end an hour apart: a rail that is silent stays silent. */
const pollRetry = { initialInterval: 60_000, maximumInterval: 60 * 60_000 } as const;

/** One pending activity whose retries are the polling: it costs no history. */
export function railPoll(settleInMs: number): Pick<Activities, 'pollRail'> {
  // A rail whose time is minutes, as in a rehearsal, is not waited for an hour longer.
  const longestMs = Math.max(pollRetry.initialInterval, settleInMs);
  const maximumInterval = Math.min(pollRetry.maximumInterval, longestMs);
  return proxyActivities<Pick<Activities, 'pollRail'>>({
    summary: 'Asks the bank what became of the order, until it says so',
    taskQueue: taskQueues.rail,
    startToCloseTimeout: 10_000,
    // The server gives up when the next attempt would come too late: with one pause more,
    // the rail is asked for the last time when its time is over, and not an hour before.
    scheduleToCloseTimeout: settleInMs + maximumInterval,
    cancellationType: ActivityCancellationType.TRY_CANCEL,
    retry: { ...pollRetry, maximumInterval },
  });
}

/** An attempt begins within 4 s and takes at most 15 s; a killed worker shows by its heartbeat. */
export const retryDeliveries = proxyActivities<Pick<Activities, 'deliverDue'>>({
  summary: 'Sends the webhooks that are due',
  taskQueue: taskQueues.webhooks,
  startToCloseTimeout: 25_000,
  heartbeatTimeout: 4_000,
  // Until the database is back: nothing else retries these deliveries.
  retry: { initialInterval: 1_000, maximumInterval: 10_000 },
});

/** A message takes at most 15 s. It is sent once: the caller who waits for it asks again. */
export const probes = proxyActivities<Pick<Activities, 'sendProbe'>>({
  summary: 'Sends a challenge or a test',
  taskQueue: taskQueues.webhooks,
  startToCloseTimeout: 20_000,
  retry: { maximumAttempts: 1 },
});

/** Steps of whole chunks: a killed worker shows by its heartbeat, long before a step's own limit. */
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
  // Until the database is back; what is a bug says so after ten attempts and is retried no more.
  retry: { initialInterval: 1_000, maximumInterval: 10_000 },
});

export const batchRail = proxyActivities<Pick<Activities, 'submitChunk' | 'pollChunk'>>({
  summary: 'Gives orders to the bank, or asks what became of them',
  ...chunkStep,
  taskQueue: taskQueues.batchRail,
  // A rail that stays away is asked again by the chunk's next look; callbacks count meanwhile.
  retry: { initialInterval: 1_000, maximumAttempts: 4 },
});

/** Whether the history is so long that a new run should go on: steps that change nothing fill it too. */
export function isTooLong(): boolean {
  return workflowInfo().continueAsNewSuggested;
}

/** While a sweep runs no other begins: one whose worker was killed must not hold up the next. */
export const sweeper = proxyActivities<Pick<Activities, 'sweep'>>({
  taskQueue: taskQueues.payouts,
  startToCloseTimeout: 30_000,
  heartbeatTimeout: 4_000,
  // Until the database is back, and then as soon as the schedule would have it.
  retry: { initialInterval: 1_000, maximumInterval: 10_000 },
});

/** Until the database, the bank or the source of rates is back: the next run may be a day away. */
const untilBack = { initialInterval: 1_000, maximumInterval: 60_000 } as const;

export const maintenance = proxyActivities<Pick<Activities, 'refreshRates' | 'purge'>>({
  taskQueue: taskQueues.payouts,
  startToCloseTimeout: 30_000,
  retry: untilBack,
});

/** They read every posting and every line there is; a killed worker shows by its heartbeat. */
export const comparison = proxyActivities<Pick<Activities, 'compareBalances' | 'readStatements'>>({
  taskQueue: taskQueues.payouts,
  startToCloseTimeout: 5 * 60_000,
  heartbeatTimeout: 4_000,
  retry: untilBack,
});
