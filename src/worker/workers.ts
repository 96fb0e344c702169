import type { DataConverter } from '@temporalio/common';
import type { NativeConnection } from '@temporalio/worker';
import { Worker, type WorkerOptions } from '@temporalio/worker';
import { retrySoonAfterOutage } from '../activities/failure.js';
import type { Activities } from '../activities/index.js';
import { localSubmissions } from '../activities/submission.js';
import { taskQueues } from '../workflows/messages.js';

export type LaneOptions = {
  readonly connection: NativeConnection;
  readonly namespace: string;
  readonly activities: Activities;
  readonly dataConverter?: DataConverter;
  readonly plugins?: WorkerOptions['plugins'];
  readonly workflows: Pick<WorkerOptions, 'workflowBundle' | 'debugMode'>;
  /** The build that Temporal versions the workers by; see TEMPORAL_WORKER_BUILD_ID. */
  readonly buildId?: string | undefined;
  /** Size of the database pool: each local activity holds a connection. */
  readonly poolSize: number;
};

/** How long a shutdown lets activities run, and when it abandons them: each ends or can be repeated. */
const shutdownGraceMs = 10_000;
const shutdownForceMs = 20_000;

/**
 * With the default, a workflow whose worker was killed waits ten seconds for that worker before
 * another one gets the task.
 */
const stickyQueueScheduleToStartTimeout = '2s';

/**
 * Equals the heartbeat interval of the activities. By default the SDK would send a heartbeat only every
 * 3.2 s of the 4 s timeout, which a process that has to wait for CPU time does not always meet.
 */
const maxHeartbeatThrottleInterval = '1s';

/**
 * A payout may be open for days, and must continue with the deployed build. If it were pinned to the
 * build it started with, it would need that build's workers as long, and their bugs could not be fixed
 * under it. So open workflows upgrade, and changes to their steps are guarded by `patched()`. Activity
 * workers are versioned too, since a step may send input that only its own build can read.
 */
const versioned = (buildId: string) => ({
  version: { deploymentName: 'corridor', buildId },
  useWorkerVersioning: true as const,
  defaultVersioningBehavior: 'AUTO_UPGRADE' as const,
});

type ActivityOptions = Omit<LaneOptions, 'workflows' | 'poolSize'>;

/** The options shared by the workers of a lane. */
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

/** Creates a worker that only runs activities, with a limit on how many run at once. */
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
 * Creates the workers of the single lane: workflows and ledger, rail calls, webhooks. This lane also
 * runs the workflows of batches, which only coordinate: a batch of 10,000 has a hundred tasks of a few
 * milliseconds. In the batch lane's process, which yields to everything else, these tasks would time
 * out again and again while the processors are busy.
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
      // Open payouts wait in the cache; an evicted one is replayed when its next task arrives.
      maxCachedWorkflows: 2_000,
      maxConcurrentWorkflowTaskExecutions: 100,
      maxConcurrentLocalActivityExecutions: poolSize + localSubmissions,
      maxConcurrentActivityTaskExecutions: poolSize,
    }),
    Worker.create({
      ...shared,
      ...workflows,
      taskQueue: taskQueues.batch,
      maxCachedWorkflows: 500,
      maxConcurrentWorkflowTaskExecutions: 20,
    }),
    // A call to a slow rail takes up to 10 s: a hundred run at once, at most 16 of them for one
    // account.
    activityWorker(options, taskQueues.rail, 100),
    // A void that the rail does not answer takes 10 s, and a command has five attempts.
    activityWorker(options, taskQueues.cancellations, 100),
    // An attempt takes up to 15 s, and an account with slow receivers occupies at most 16 slots, one
    // for each endpoint, deleted ones included (activities/delivery.ts): two dozen such accounts do
    // not keep the others waiting.
    activityWorker(options, taskQueues.webhooks, 400),
  ]);
}

/** Creates the workers of the batch lane: a separate process, so that single payouts never wait for it. */
export async function createBatchLane(options: ActivityOptions): Promise<readonly Worker[]> {
  return Promise.all([
    // Most of these activities only wait for events: the connection pool limits the actual work.
    activityWorker(options, taskQueues.batch, 100),
    // A rail that does not answer occupies a slot for 10 s: small batches must not wait for each other.
    activityWorker(options, taskQueues.batchRail, 20),
  ]);
}
