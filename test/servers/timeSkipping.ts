import { setTimeout } from 'node:timers/promises';
import { activityInfo } from '@temporalio/activity';
import type { Client } from '@temporalio/client';
import { TestWorkflowEnvironment } from '@temporalio/testing';
import { Worker } from '@temporalio/worker';
import { findTemporalCli, findTimeSkippingServer } from '../../sandbox/stack/temporalBinary.js';
import type { Activities } from '../../src/activities/index.js';
import type { WakeablePayout } from '../../src/domain/payout.js';
import { addSearchAttributes } from '../../src/temporal/searchAttributes.js';
import { startPayout } from '../../src/temporal/workflowCalls.js';
import { taskQueues } from '../../src/workflows/messages.js';
import { finderOptions } from './finders.js';
import { quietRuntime, workflowsInThisThread } from './workflowBundle.js';

/** The longest test takes 4 s, or 25 s on a busy machine; vitest's own limit is 120 s. */
const testLimitMs = 100_000;

/** Time after which an activity that a failed test left hanging is abandoned. */
const shutdownForceMs = 1_000;

/**
 * A Temporal server whose clock jumps to the next timer while a test awaits a result or
 * `sleep`, unless an activity or a workflow task is running. This clock is only ever ahead of
 * PostgreSQL's: a result puts it ten years ahead, because the run timeout is due then. Tests must
 * therefore never compare the two clocks.
 */
export type TimeSkipping = {
  readonly client: Client;
  /** Advances the server's clock by this duration; returns when everything due by then is done. */
  readonly sleep: (durationMs: number) => Promise<void>;
  /** Milliseconds since the epoch, by the server's clock. */
  readonly now: () => Promise<number>;
  readonly withWorkers: <T>(
    activities: Partial<Activities>,
    work: () => Promise<T>,
    options?: { readonly cachedWorkflows?: number },
  ) => Promise<T>;
  readonly stop: () => Promise<void>;
};

/** The operations that a server with a real clock offers too. */
export type TestServer = Pick<TimeSkipping, 'client' | 'withWorkers' | 'stop'>;

/** The SDK gives a server 5 s to start. Three that start at once on a busy machine may need longer. */
const startAttempts = 6;

async function withinAttempts<T>(start: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await start();
    } catch (error) {
      if (attempt === startAttempts || !/did not start within/.test(String(error))) throw error;
    }
  }
}

/** Starts the server, which takes about two seconds: once per test file, for one test at a time. */
export async function startTimeSkipping(): Promise<TimeSkipping> {
  quietRuntime();
  const path = await findTimeSkippingServer(finderOptions('TEMPORAL_TEST_SERVER_PATH'));
  const server = { executable: { type: 'existing-path', path } } as const;
  const env = await withinAttempts(() => TestWorkflowEnvironment.createTimeSkipping({ server }));
  return createTestServer(env);
}

/** Starts a real server, with a real clock, that suggests continue-as-new after this many history events. */
export async function startImpatient(suggestedAfterEvents: number): Promise<TestServer> {
  quietRuntime();
  const path = await findTemporalCli(finderOptions('TEMPORAL_CLI_PATH'));
  const suggestion = `limit.historyCount.suggestContinueAsNew=${suggestedAfterEvents}`;
  const executable = { type: 'existing-path', path } as const;
  const server = { executable, extraArgs: ['--dynamic-config-value', suggestion] };
  const env = await withinAttempts(() => TestWorkflowEnvironment.createLocal({ server }));
  return createTestServer(env);
}

async function createTestServer(env: TestWorkflowEnvironment): Promise<TimeSkipping> {
  await addSearchAttributes(env.connection, env.client);
  let crew: Crew | undefined;
  /** The previous test's workers, unless the cache size differs or an activity is still running. */
  const crewFor = async (cachedWorkflows: number) => {
    if (crew?.cachedWorkflows === cachedWorkflows && crew.isFit()) return crew;
    await crew?.stop();
    crew = await startCrew(env, cachedWorkflows);
    return crew;
  };
  return {
    client: env.client,
    sleep: (durationMs) => env.sleep(durationMs),
    now: () => env.currentTimeMs(),
    withWorkers: async (activities, work, { cachedWorkflows = 0 } = {}) => {
      const { takeOver, workerFailure } = await crewFor(cachedWorkflows);
      takeOver(activities);
      const late = new AbortController();
      try {
        return await Promise.race([work(), workerFailure, expire(late.signal)]);
      } finally {
        late.abort();
      }
    },
    stop: async () => {
      await crew?.stop();
      await env.teardown();
    },
  };
}

/**
 * The workers of a test file. Starting and stopping workers takes longer than most tests, so tests
 * share them; the workers look up the current test's activity at every call.
 */
type Crew = {
  readonly cachedWorkflows: number;
  readonly takeOver: (activities: Partial<Activities>) => void;
  /** Whether all workers run and no activity does: a running activity would stop the next test's clock. */
  readonly isFit: () => boolean;
  /** Rejects when a worker fails, since the test would otherwise wait for ever. */
  readonly workerFailure: Promise<never>;
  readonly stop: () => Promise<void>;
};

async function startCrew(env: TestWorkflowEnvironment, cachedWorkflows: number): Promise<Crew> {
  let current = new Map<string, unknown>();
  let inFlight = 0;
  const workers = await createWorkers(env, cachedWorkflows, async (...args) => {
    const { activityType } = activityInfo();
    const activity = current.get(activityType);
    if (typeof activity !== 'function')
      throw new Error(`The test has no activity ${activityType}.`);
    inFlight += 1;
    try {
      return await activity(...args);
    } finally {
      inFlight -= 1;
    }
  });
  const running = workers.map((worker) => worker.run());
  const workerFailure = Promise.all(running).then(() => {
    throw new Error('The workers have stopped unexpectedly.');
  });
  workerFailure.catch(() => undefined);
  return {
    cachedWorkflows,
    workerFailure,
    isFit: () => inFlight === 0 && workers.every((worker) => worker.getState() === 'RUNNING'),
    takeOver: (activities) => {
      current = new Map(Object.entries(activities));
    },
    stop: async () => {
      for (const worker of workers) if (worker.getState() === 'RUNNING') worker.shutdown();
      await Promise.allSettled(running);
    },
  };
}

/** Creates a worker for every queue, because a task that no worker takes stops the clock. */
async function createWorkers(
  env: TestWorkflowEnvironment,
  cachedWorkflows: number,
  activity: (...args: unknown[]) => Promise<unknown>,
) {
  const shared = {
    connection: env.nativeConnection,
    namespace: 'default',
    activities: { default: activity },
    shutdownForceTime: shutdownForceMs,
  };
  const { payouts, batch, ...rest } = taskQueues;
  const workflows = {
    ...shared,
    ...(await workflowsInThisThread()),
    // By default nothing is cached, so every task replays the history so far. Tests of long
    // histories use a cache, as they would otherwise take minutes.
    maxCachedWorkflows: cachedWorkflows,
  };
  return Promise.all([
    ...[payouts, batch].map((taskQueue) => Worker.create({ ...workflows, taskQueue })),
    ...Object.values(rest).map((taskQueue) => Worker.create({ ...shared, taskQueue })),
  ]);
}

/** Rejects after the time limit of a test, so that its workers do not outlive it. */
async function expire(signal: AbortSignal): Promise<never> {
  await setTimeout(testLimitMs, undefined, { signal });
  throw new Error(`The test did not end within ${testLimitMs} ms.`);
}

/**
 * Starts a payout as the API does, and resolves when its first workflow task, which decides it, is over: a
 * query waits for that. Skipping time before would let the task run out of time.
 */
export async function startDecided({ client }: TestServer, payout: WakeablePayout): Promise<void> {
  await startPayout(client, payout, 10_000);
  await client.workflow.getHandle(payout.id).query('__temporal_workflow_metadata');
}
