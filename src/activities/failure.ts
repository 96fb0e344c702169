import { Context } from '@temporalio/activity';
import { ApplicationFailure, ApplicationFailureCategory } from '@temporalio/common';
import type { ActivityInterceptorsFactory } from '@temporalio/worker';
import { isOutage } from '../db/client.js';

/**
 * How activities fail, in Temporal's terms. What is expected to be tried again is
 * BENIGN, which keeps it out of error logs and metrics; everything else an activity throws
 * is a bug or an outage and stays what it is.
 */
/** As many repeats as an outage's end or a deploy may need before it is called a bug. */
const attemptsBeforeBug = 10;

/**
 * Runs a step of the ledger. An outage of the database is retried without end; anything else
 * that has failed ten times is a bug, and fails for good, so that the payout is parked for a
 * person instead of trying in silence for ever.
 */
export async function failAfterAttempts<T>(step: Promise<T>): Promise<T> {
  try {
    return await step;
  } catch (error) {
    const { attempt, isLocal } = Context.current().info;
    // What is thrown to be tried again later is no bug, however often it is.
    const isMeant = error instanceof ApplicationFailure;
    if (isLocal || isMeant || isOutage(error) || attempt < attemptsBeforeBug) throw error;
    throw ApplicationFailure.nonRetryable(messageOf(error), 'Bug');
  }
}

/**
 * The pause after a failure that was an outage of the database, whatever the activity's own
 * retries: theirs grow to minutes for the sake of a rail, and money would lie still for as long
 * after the database is back. Its pool takes no more connections for being asked often.
 */
const outageRetryDelayMs = 3_000;

/** Has a worker's activities tried again soon after an outage of the database. */
export const retrySoonAfterOutage: ActivityInterceptorsFactory = ({ info }) => ({
  inbound: {
    execute: async (input, next) => {
      try {
        return await next(input);
      } catch (error) {
        if (info.isLocal || !isOutage(error)) throw error;
        throw ApplicationFailure.fromError(error, {
          type: 'Outage',
          nextRetryDelay: outageRetryDelayMs,
        });
      }
    },
  },
});

/** After a pause of its own, if it has one, and not that of the activity's retries. */
export function retryLater(message: string, afterMs?: number): ApplicationFailure {
  return ApplicationFailure.create({
    message,
    type: 'NotYet',
    category: ApplicationFailureCategory.BENIGN,
    nextRetryDelay: afterMs,
  });
}

/** What an error says. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Four times within the heartbeat time-out of the lane's activities, see workflows/proxies.ts. */
const beatMs = 1_000;

/**
 * Shows the server that the activity lives while it works: what a killed worker leaves behind is
 * then repeated after the heartbeat's time-out, and not after the activity's own.
 */
export async function withHeartbeat<T>(work: () => Promise<T>): Promise<T> {
  const context = Context.current();
  const timer = setInterval(() => context.heartbeat(), beatMs);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

/** A step of the ledger that takes long enough to be missed: `failAfterAttempts`, with a heartbeat. */
export function longStep<T>(work: () => Promise<T>): Promise<T> {
  return failAfterAttempts(withHeartbeat(work));
}
