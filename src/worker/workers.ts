import type { DataConverter } from '@temporalio/common';
import type { NativeConnection } from '@temporalio/worker';
import { Worker, type WorkerOptions } from '@temporalio/worker';
import { retrySoonAfterOutage } from '../activities/failure.js';
import type { Activities } from '../activities/index.js';
import { taskQueues } from '../workflows/messages.js';

export type LaneOptions = {
  readonly connection: NativeConnection;
  readonly namespace: string;
  readonly activities: Activities;
  readonly dataConverter?: DataConverter;
  readonly plugins?: WorkerOptions['plugins'];
  readonly workflows: Pick<WorkerOptions, 'workflowBundle'>;
  /** Has Temporal version the workers; see TEMPORAL_WORKER_BUILD_ID. */
  readonly buildId?: string | undefined;
  /** Local activities hold a database connection each. */
  readonly poolSize: number;
};

/** How long a deploy waits for what runs; every activity of ours ends or can be repeated. */
const shutdownGraceMs = 10_000;
const shutdownForceMs = 20_000;

/**
 * Without this a workflow whose worker was killed waits ten seconds for it before another
 * worker gets the task.
 */
const stickyQueueScheduleToStartTimeout = '2s';

/**
 * As often as activities show that they live: the SDK would pass it on only every 3.2 s of the
 * 4 s they have, which a process that has to wait for its processor does not always meet.
 */
const maxHeartbeatThrottleInterval = '1s';

/**
 * A payout may be open for days, and it must continue with the build that is deployed: pinned to
 * the one that it began with, it would need that one's workers for as long, and their bugs could not be
 * corrected under it. So open workflows upgrade, and a change to their steps is behind `patched()`.
 * Workers of activities have the version too, since a step may send what only its own build reads.
 */
const versioned = (buildId: string) => ({
  version: { deploymentName: 'corridor', buildId },
  useWorkerVersioning: true as const,
  defaultVersioningBehavior: 'AUTO_UPGRADE' as const,
});

type ActivityOptions = Omit<LaneOptions, 'workflows' | 'poolSize'>;

/** What the workers of a lane have in common. */
function sharedOptions(options: ActivityOptions) {
  const { connection, namespace, dataConverter, plugins, buildId } = options;
  return {
    connection,
    namespace,
    ...(dataConverter === undefined ? {} : { dataConverter }),
    ...(plugins === undefined ? {} : { plugins }),
    ...(buildId === undefined ? {} : { workerDeploymentOptions: versioned(buildId) }),
    shutdownGraceTime: shutdownGraceMs,
    shutdownForceTime: shutdownForceMs,
    maxHeartbeatThrottleInterval,
    interceptors: { activity: [retrySoonAfterOutage] },
  };
}

/** A worker of activities alone, so many of them at once. */
function activityWorker(
  options: ActivityOptions,
  taskQueue: string,
  maxConcurrentActivityTaskExecutions: number,
): Promise<Worker> {
  const { activities } = options;
  const shared = sharedOptions(options);
  return Worker.create({ ...shared, activities, taskQueue, maxConcurrentActivityTaskExecutions });
}

/**
 * The workers of the single lane: workflows and ledger, calls to rails, webhooks. Also the
 * workflows of batches, which decide and do not work: a batch of 10,000 has a hundred tasks of some
 * milliseconds. In the process of the batch lane, which gives way to everything else, they would
 * exceed their limit again and again while the processors are busy.
 */
export async function createSingleLane(options: LaneOptions): Promise<readonly Worker[]> {
  const { activities, poolSize } = options;
  const shared = sharedOptions(options);
  const workflows = { ...options.workflows, stickyQueueScheduleToStartTimeout };
  return Promise.all([
    Worker.create({
      ...shared,
      ...workflows,
      activities,
      taskQueue: taskQueues.payouts,
      // Open payouts wait in the cache; one that is not there is replayed on its next nudge.
      maxCachedWorkflows: 2_000,
      maxConcurrentWorkflowTaskExecutions: 100,
      maxConcurrentLocalActivityExecutions: poolSize,
      maxConcurrentActivityTaskExecutions: poolSize,
    }),
    Worker.create({
      ...shared,
      ...workflows,
      taskQueue: taskQueues.batch,
      maxCachedWorkflows: 500,
      maxConcurrentWorkflowTaskExecutions: 20,
    }),
    // A call to a rail takes up to 10 s when the rail is slow: a hundred wait at once, 16 of them
    // an account's.
    activityWorker(options, taskQueues.rail, 100),
    // An attempt takes up to 15 s, and an account of slow receivers holds at most 16 of these, one for
    // each endpoint, those of deleted ones among them (activities/delivery.ts): two dozen such accounts
    // do not keep the others waiting.
    activityWorker(options, taskQueues.webhooks, 400),
  ]);
}

/** The workers of the batch lane: a process of its own, so that single payouts never wait for it. */
export async function createBatchLane(options: ActivityOptions): Promise<readonly Worker[]> {
  return Promise.all([
    // Most of these only wait for events: the pool of connections is what limits the work.
    activityWorker(options, taskQueues.batch, 100),
    // A rail that does not answer holds a slot for 10 s: small batches must not wait for each other.
    activityWorker(options, taskQueues.batchRail, 20),
  ]);
}
