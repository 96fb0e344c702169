import { type WorkflowHandle, WorkflowNotFoundError } from '@temporalio/client';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { retryLater } from '../../src/activities/failure.js';
import type { Activities } from '../../src/activities/index.js';
import { newId } from '../../src/db/id.js';
import { upsertSchedules } from '../../src/temporal/schedules.js';
import {
  runUpdate,
  wakeChunks,
  wakeEndpoint,
  wakePayout,
} from '../../src/temporal/workflowCalls.js';
import { operateUpdate, searchAttributes, taskQueues } from '../../src/workflows/messages.js';
import { eventually } from '../assertions/eventually.js';
import { chunkCounts, ScriptedBatch } from '../fakes/scriptedBatch.js';
import { type PayoutActivities, ScriptedPayout } from '../fakes/scriptedPayout.js';
import { startDecided, startImpatient, type TestServer } from '../servers/timeSkipping.js';
import { loggedErrors } from '../servers/workflowBundle.js';

// Every workflow, at every place where it may wait for long, on a server that soon suggests a new run.

/** More events than any workflow here needs before it waits, but few enough to reach within a second. */
const suggestedAfterEvents = 50;

/** A run with this many events has ignored the server's suggestion. */
const mostEvents = 4 * suggestedAfterEvents;

/** Time limit for a new run: longer than the slowest one takes on a busy machine. */
const patienceMs = 30_000;

/** Maximum number of runs: a workflow with more of them keeps continuing as new without need. */
const mostRuns = 10;

let server: TestServer;

beforeAll(async () => {
  // Errors that another file has provoked on purpose in the same process do not count here.
  loggedErrors.splice(0);
  server = await startImpatient(suggestedAfterEvents);
});
afterAll(() => server.stop());
afterEach(async () => {
  // Workflows that a failed test left behind must not run on the next test's workers.
  for await (const { workflowId } of server.client.workflow.list({ query: isRunning })) {
    // The list is eventually consistent: some of these workflows have ended already.
    await handleOf(workflowId)
      .terminate()
      .catch((error: unknown) => {
        if (!(error instanceof WorkflowNotFoundError)) throw error;
      });
  }
  // A workflow that loops would log errors here.
  expect([...new Set(loggedErrors.splice(0))]).toEqual([]);
});

const isRunning = "ExecutionStatus = 'Running'";

const handleOf = (workflowId: string) => server.client.workflow.getHandle(workflowId);

const runOf = async (handle: WorkflowHandle) => (await handle.describe()).runId;

/** Nudges a workflow until it continues as new; returns the ID of the run that has ended. */
async function untilNewRun(
  workflowId: string,
  nudge: () => Promise<unknown>,
  most = mostEvents,
): Promise<string> {
  const handle = handleOf(workflowId);
  const first = await runOf(handle);
  return eventually(`${workflowId} is in a new run`, patienceMs, async () => {
    await nudge();
    const { runId, historyLength } = await handle.describe();
    if (runId !== first) return first;
    if (historyLength > most) throw new Error(`The first run has ${historyLength} events.`);
    return undefined;
  });
}

/** The one harmless cause of a failed task: an event arrived meanwhile, and the server retries the task. */
const unhandledCommand = 1;

/** The runs from this one on. Verifies that none has a workflow task that failed or timed out. */
async function runsFrom(workflowId: string, firstRunId: string): Promise<readonly string[]> {
  const runs = [firstRunId];
  for (const runId of runs) {
    const { events } = await server.client.workflow.getHandle(workflowId, runId).fetchHistory();
    const troubles = (events ?? []).filter(
      ({ workflowTaskFailedEventAttributes: failed, workflowTaskTimedOutEventAttributes: late }) =>
        late || (failed && failed.cause !== unhandledCommand),
    );
    expect(troubles).toEqual([]);
    const end = events?.at(-1)?.workflowExecutionContinuedAsNewEventAttributes;
    if (end?.newExecutionRunId) runs.push(end.newExecutionRunId);
    expect(runs.length).toBeLessThan(mostRuns);
  }
  return runs;
}

const metadata = z.object({ currentDetails: z.string().optional() });

/** What an operator sees of a payout in the Temporal UI. */
async function shownOf(workflowId: string) {
  const handle = handleOf(workflowId);
  const { typedSearchAttributes: attributes } = await handle.describe();
  const { currentDetails } = metadata.parse(await handle.query('__temporal_workflow_metadata'));
  return {
    account: attributes.get(searchAttributes.accountId),
    needsAttention: attributes.get(searchAttributes.needsAttention),
    reason: attributes.get(searchAttributes.attentionReason),
    details: currentDetails ?? '',
  };
}

describe('a payout', () => {
  const startable = ({ id }: ScriptedPayout) =>
    ({
      id,
      accountId: 'acc_1',
      mode: 'test',
      sourceCurrency: 'USD',
      destinationCurrency: 'EUR',
      settleBy: null,
      fixedSide: 'source',
      ...{ amount: 125_000n, sourceMinor: null, receiveMinor: null },
      batchId: null,
    }) as const;

  const wake = (script: ScriptedPayout) => () => wakePayout(server.client, startable(script));

  async function drive(
    script: ScriptedPayout,
    test: () => Promise<void>,
    activities: Partial<Activities> = {},
  ) {
    await server.withWorkers({ ...script.activities, ...activities }, async () => {
      await startDecided(server, startable(script));
      await test();
    });
  }

  async function settle(script: ScriptedPayout): Promise<void> {
    script.inbox.push('settled');
    await wake(script)();
    await expect(handleOf(script.id).result()).resolves.toBe('settled');
  }

  /** A payout on a rail that reports nothing within this settlement time. */
  const silentFor = (settleInMs: number, does: Partial<PayoutActivities> = {}) => {
    const script = new ScriptedPayout(newId('payout'), does);
    script.row = { ...script.row, settleInMs };
    return script;
  };

  const parked = {
    needsAttention: true,
    reason: 'settle_by_passed',
    details: expect.stringContaining('settle_by_passed'),
  };
  const notParked = {
    needsAttention: false,
    reason: undefined,
    details: expect.not.stringContaining('Needs an operator'),
  };
  const dayMs = 24 * 60 * 60 * 1000;

  it.each([
    {
      place: 'the response to its submission',
      script: () =>
        silentFor(dayMs, { submitPayouts: () => Promise.reject(retryLater('no answer')) }),
      lastStep: 'submitPayouts',
      shown: notParked,
    },
    {
      place: 'the callback of its rail',
      script: () => silentFor(dayMs),
      lastStep: 'submitPayouts',
      shown: notParked,
    },
    // It polls after a minute, or earlier if its time is over. With pauses as long as a real rail's there
    // would be no second attempt, and a slow machine would park the payout.
    {
      place: 'the rail that it polls',
      script: () => silentFor(20, { pollRail: () => Promise.reject(retryLater('no news', 1_000)) }),
      lastStep: 'pollRail',
      shown: notParked,
    },
    {
      place: 'a person',
      script: () => silentFor(0),
      lastStep: 'parkPayout',
      shown: parked,
    },
  ] as const)('that waits for $place continues in a new run', async (waiting) => {
    const script = waiting.script();
    const there = script.nextCall(waiting.lastStep);
    await drive(script, async () => {
      await there;
      const before = await untilNewRun(script.id, wake(script));
      await eventually('the new run shows the same details', patienceMs, async () => {
        if (waiting.shown !== parked) return true;
        const { details } = await shownOf(script.id);
        return details.includes('Needs an operator') ? true : undefined;
      });
      expect(await shownOf(script.id)).toMatchObject({ ...waiting.shown, account: 'acc_1' });
      await settle(script);
      expect(await shownOf(script.id)).toMatchObject(notParked);
      expect(await runsFrom(script.id, before)).toHaveLength(2);
    });
  });

  it('does not show in its new run that a person is needed when that was resolved meanwhile', async () => {
    const script = silentFor(0, {
      decidePayouts: async () => {
        if (script.row.status === 'pending') return script.move('processing');
        script.row = { ...script.row, attention: null, settleInMs: dayMs };
        return [script.row];
      },
    });
    const there = script.nextCall('parkPayout');
    await drive(script, async () => {
      await there;
      await untilNewRun(script.id, wake(script));
      await eventually('no person is needed', patienceMs, async () =>
        (await shownOf(script.id)).needsAttention === false ? true : undefined,
      );
      expect(await shownOf(script.id)).toMatchObject(notParked);
      await settle(script);
    });
  });

  it('answers every update, whichever run receives it', async () => {
    const script = silentFor(0);
    const there = script.nextCall('parkPayout');
    const request = [newId('operatorAction')];
    let requested = 0;
    let carriedOut = 0;
    await drive(
      script,
      async () => {
        await there;
        const before = await untilNewRun(script.id, async () => {
          const updates = [1, 2, 3].map(() =>
            runUpdate(
              server.client,
              startable(script),
              { name: operateUpdate.name, args: request },
              20_000,
            ),
          );
          requested += updates.length;
          for (const answer of await Promise.all(updates)) {
            expect(answer).toMatchObject({ outcome: 'refused', detail: 'not now' });
          }
        });
        await settle(script);
        expect(await runsFrom(script.id, before)).toHaveLength(2);
      },
      {
        executeCommand: async () => {
          carriedOut += 1;
          return {
            steps: [script.row],
            result: { outcome: 'refused', detail: 'not now', action: null },
          };
        },
      },
    );
    expect(carriedOut).toBe(requested);
  });
});

describe('a chunk', () => {
  async function drive(script: ScriptedBatch, test: (workflowId: string) => Promise<void>) {
    await server.withWorkers(script.activities, async () => {
      await wakeChunks(server.client, [{ batchId: script.batchId, number: 0 }]);
      await test(`${script.batchId}/0`);
    });
  }

  const wake = (script: ScriptedBatch) => () =>
    wakeChunks(server.client, [{ batchId: script.batchId, number: 0 }]);

  it('that waits for its rail continues in a new run', async () => {
    const script = new ScriptedBatch();
    script.current = chunkCounts({ sent: 1 });
    await drive(script, async (workflowId) => {
      const before = await untilNewRun(workflowId, wake(script));
      script.current = chunkCounts();
      await wake(script)();
      await handleOf(workflowId).result();
      expect((await runsFrom(workflowId, before)).length).toBeGreaterThan(1);
    });
  });
});

describe('the deliveries of an endpoint', () => {
  it.each([
    { place: 'with more attempts due at once', nextInMs: 0 },
    { place: 'that waits for its next attempt', nextInMs: 60 * 60 * 1000 },
  ])('$place continue in a new run', async ({ nextInMs }) => {
    const endpointId = newId('webhookEndpoint');
    const workflowId = `webhook/${endpointId}`;
    let isOver = false;
    const deliverDue = async () => ({ nextInMs: isOver ? null : nextInMs });
    await server.withWorkers({ deliverDue }, async () => {
      const wake = () => wakeEndpoint(server.client, endpointId);
      await wake();
      const before = await untilNewRun(workflowId, wake);
      isOver = true;
      await wake();
      await handleOf(workflowId).result();
      expect((await runsFrom(workflowId, before)).length).toBeGreaterThan(1);
    });
  });
});

describe('scheduled workflows', () => {
  const names = ['sweep', 'retention', 'statement', 'refreshRates', 'balances'];

  it('have no timeout, so that they can outlast an outage', async () => {
    const { schedule } = server.client;
    await upsertSchedules(server.client);
    for (const name of names) {
      const { action } = await schedule.getHandle(name).describe();
      expect(action).toMatchObject({ workflowType: name });
      expect(action.workflowRunTimeout ?? action.workflowExecutionTimeout).toBe(undefined);
      await schedule.getHandle(name).delete();
    }
  });

  it('read statements late enough that payments booked before midnight have been reported or polled', async () => {
    const { schedule } = server.client;
    await upsertSchedules(server.client);
    const { info } = await schedule.getHandle('statement').describe();
    for (const name of names) await schedule.getHandle(name).delete();
    const hours = info.nextActionTimes.map((at) => at.getUTCHours());
    // Polls are at most an hour apart.
    expect(new Set(hours)).toEqual(new Set([2]));
  });

  it('are made up if Temporal was away when they were due, but for no longer than an interval', async () => {
    const { schedule } = server.client;
    await upsertSchedules(server.client);
    const hourMs = 60 * 60_000;
    const windows: Record<string, number> = {};
    for (const name of names) {
      const { policies } = await schedule.getHandle(name).describe();
      windows[name] = policies.catchupWindow;
      await schedule.getHandle(name).delete();
    }
    expect(windows).toEqual({
      // More than one sweep at once would find nothing.
      sweep: 60_000,
      ...{ retention: hourMs, balances: hourMs, refreshRates: hourMs },
      statement: 24 * hourMs,
    });
  });

  it('can run many times under one workflow ID', async () => {
    const activities = {
      sweep: async () => undefined,
      purge: async () => 0,
      readStatements: async () => 0,
      refreshRates: async () => undefined,
      compareBalances: async () => 0,
    };
    await server.withWorkers(activities, async () => {
      for (let run = 0; run < 10; run += 1) {
        for (const name of names) {
          const options = { workflowId: `${name} again`, taskQueue: taskQueues.payouts };
          const handle = await server.client.workflow.start(name, options);
          await handle.result();
          expect(await runsFrom(handle.workflowId, handle.firstExecutionRunId)).toHaveLength(1);
        }
      }
    });
  });
});
