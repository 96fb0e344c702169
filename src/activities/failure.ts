import { Context } from '@temporalio/activity';
import { ApplicationFailure, ApplicationFailureCategory } from '@temporalio/common';
import { isOutage } from '../db/client.js';

/**
 * The only file that speaks Temporal's failures. What is expected to be tried again is
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
export async function untilBug<T>(step: Promise<T>): Promise<T> {
  try {
    return await step;
  } catch (error) {
    const { attempt, isLocal } = Context.current().info;
    if (isLocal || isOutage(error) || attempt < attemptsBeforeBug) throw error;
    const message = error instanceof Error ? error.message : String(error);
    throw ApplicationFailure.nonRetryable(message, 'Bug');
  }
}

export function notYet(message: string): ApplicationFailure {
  return ApplicationFailure.create({
    message,
    type: 'NotYet',
    category: ApplicationFailureCategory.BENIGN,
  });
}

/** Whether an attempt before this one may have died: what it has written, only the rows know. */
export function isRepeated(): boolean {
  return Context.current().info.attempt > 1;
}

/** Four times within the heartbeat time-out of the lane's activities, see workflows/proxies.ts. */
const beatMs = 1_000;

/**
 * Shows the server that the activity lives while it works: what a killed worker leaves behind is
 * then repeated after the heartbeat's time-out, and not after the activity's own.
 */
export async function beating<T>(work: () => Promise<T>): Promise<T> {
  const context = Context.current();
  const timer = setInterval(() => context.heartbeat(), beatMs);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}
