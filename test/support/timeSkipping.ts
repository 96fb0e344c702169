import type { Client } from '@temporalio/client';
import { TestWorkflowEnvironment } from '@temporalio/testing';
import { Worker } from '@temporalio/worker';
import type { Activities } from '../../src/activities/index.js';
import { findTimeSkippingServer } from '../../src/stack/temporalBinary.js';
import { addSearchAttributes } from '../../src/temporal/searchAttributes.js';
import { taskQueues } from '../../src/workflows/messages.js';
import { finderOptions } from './servers.js';
import { quietRuntime, workflowBundle } from './workflowBundle.js';

/**
 * A Temporal server whose clock jumps to the next timer while a test awaits a result or
 * `sleep`, unless an activity or a workflow task is under way. The clock only ever runs
 * ahead of PostgreSQL's, so a test never compares the two.
 */
export type TimeSkipping = {
  readonly client: Client;
  /** Lets so much of the server's time pass; returns when all that was due has been done. */
  readonly sleep: (durationMs: number) => Promise<void>;
  /** Milliseconds since the epoch, by the server's clock. */
  readonly now: () => Promise<number>;
  readonly withWorkers: <T>(activities: Partial<Activities>, work: () => Promise<T>) => Promise<T>;
  readonly stop: () => Promise<void>;
};

/** One server, about two seconds to come up: once a test file, and one test at a time on it. */
export async function startTimeSkipping(): Promise<TimeSkipping> {
  quietRuntime();
  const path = await findTimeSkippingServer(finderOptions('TEMPORAL_TEST_SERVER_PATH'));
  const env = await TestWorkflowEnvironment.createTimeSkipping({
    server: { executable: { type: 'existing-path', path } },
  });
  await addSearchAttributes(env.connection, env.client);
  return {
    client: env.client,
    sleep: (durationMs) => env.sleep(durationMs),
    now: () => env.currentTimeMs(),
    withWorkers: async (activities, work) => {
      const workers = await createWorkers(env, activities);
      const running = Promise.all(workers.map((worker) => worker.run()));
      try {
        return await Promise.race([work(), neverEnds(running)]);
      } finally {
        for (const worker of workers) if (worker.getState() === 'RUNNING') worker.shutdown();
        await running;
      }
    },
    stop: () => env.teardown(),
  };
}

/** A worker for every queue, for a task that nobody takes holds the clock. */
async function createWorkers(env: TestWorkflowEnvironment, activities: Partial<Activities>) {
  const shared = { connection: env.nativeConnection, namespace: 'default', activities };
  const { payouts, ...others } = taskQueues;
  return Promise.all([
    Worker.create({
      ...shared,
      taskQueue: payouts,
      workflowBundle: await workflowBundle(),
      // Nothing is remembered between two tasks, so every task replays the history so far.
      maxCachedWorkflows: 0,
    }),
    ...Object.values(others).map((taskQueue) => Worker.create({ ...shared, taskQueue })),
  ]);
}

/** Rejects with the failure of a worker, which would otherwise leave its test waiting. */
async function neverEnds(running: Promise<unknown>): Promise<never> {
  await running;
  return new Promise(() => {});
}
