import { Context } from '@temporalio/activity';
import { ApplicationFailure, ApplicationFailureCategory } from '@temporalio/common';
import type { ActivityInterceptorsFactory } from '@temporalio/worker';
import { isOutage } from '../db/client.js';

/**
 * How activities fail, in Temporal's terms. An expected failure that is to be retried is BENIGN,
 * which keeps it out of error logs and metrics. Any other error that an activity throws is a bug
 * or an outage, and is thrown as it is.
 */
/** Attempts before a failure counts as a bug: as many as the end of an outage or a deploy may need. */
const attemptsBeforeBug = 10;

/**
 * Failures in one worker before that. Temporal's number of the attempt also counts outages, and the attempts of
 * a payout that waits for its bank: after these, a single error would count as a bug.
 */
const failuresBeforeBug = 3;

/** Maximum activities whose failures a worker counts, some 20 MB. It begins again if more of them fail at once. */
const mostCounted = 100_000;

/** How often each activity has failed in this worker. */
const failures = new Map<string, number>();

/**
 * Runs a ledger step. An outage of the database is retried without end. Any other step that fails at
 * its tenth attempt or later, for the third time, has a bug and fails for good, so that the payout is parked
 * for an operator instead of being retried silently for ever.
 */
export async function failAfterAttempts<T>(step: Promise<T>): Promise<T> {
  try {
    return await step;
  } catch (error) {
    const { activityId, attempt, isLocal, workflowExecution } = Context.current().info;
    // A failure thrown on purpose, to be retried later, is no bug, however often it occurs.
    const isMeant = error instanceof ApplicationFailure;
    if (isLocal || isMeant || isOutage(error)) throw error;
    if (failures.size >= mostCounted) failures.clear();
    const key = `${workflowExecution?.runId} ${activityId}`;
    const failed = (failures.get(key) ?? 0) + 1;
    failures.set(key, failed);
    if (attempt < attemptsBeforeBug || failed < failuresBeforeBug) throw error;
    throw ApplicationFailure.nonRetryable(messageOf(error), 'Bug');
  }
}

/**
 * Retry delay after an outage of the database, whatever the activity's own retry policy. Those
 * policies back off to minutes for the sake of a rail, and payouts would stand still for as long
 * after the database is back. Frequent retries open no extra connections: the pool is bounded.
 */
const outageRetryDelayMs = 3_000;

/** Makes a worker's activities retry soon after an outage of the database. */
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

/** A failure that is retried after `afterMs` or, without that, by the activity's retry policy. */
export function retryLater(message: string, afterMs?: number): ApplicationFailure {
  return ApplicationFailure.create({
    message,
    type: 'NotYet',
    category: ApplicationFailureCategory.BENIGN,
    nextRetryDelay: afterMs,
  });
}

/** Rethrows another system's error without its code, which could be mistaken for a database outage's. */
export function throwForeign(error: unknown): never {
  throw new Error(messageOf(error));
}

/** Returns the message of an error, or another thrown value as text. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message || error.name : String(error);
}

/** A quarter of the heartbeat timeout of the lane's activities, see workflows/proxies.ts. */
const heartbeatIntervalMs = 1_000;

/**
 * Sends heartbeats while the activity works: the work of a killed worker is then repeated after the
 * heartbeat timeout, not after the activity's own, longer timeout.
 */
export async function withHeartbeat<T>(work: () => Promise<T>): Promise<T> {
  const context = Context.current();
  // A local activity ends with its workflow task and has no heartbeat timeout.
  if (context.info.isLocal) return work();
  const timer = setInterval(() => context.heartbeat(), heartbeatIntervalMs);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

/** Runs a ledger step that may take seconds: `failAfterAttempts`, with heartbeats. */
export function longStep<T>(work: () => Promise<T>): Promise<T> {
  return failAfterAttempts(withHeartbeat(work));
}
