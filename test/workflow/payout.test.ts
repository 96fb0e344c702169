import { setTimeout as delay } from 'node:timers/promises';
import { Context } from '@temporalio/activity';
import { ApplicationFailure, type WorkflowHandle } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { retryLater } from '../../src/activities/failure.js';
import { newId } from '../../src/db/id.js';
import { runUpdate, wakePayout } from '../../src/temporal/workflowCalls.js';
import {
  cancelUpdate,
  operateUpdate,
  railUpdateSignal,
  searchAttributes,
  taskQueues,
} from '../../src/workflows/messages.js';
import type { payout } from '../../src/workflows/payout.js';
import { type PayoutActivities, ScriptedPayout } from '../fakes/scriptedPayout.js';
import { startDecided, startTimeSkipping, type TimeSkipping } from '../servers/timeSkipping.js';

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const dayMs = 24 * hourMs;

type Handle = WorkflowHandle<typeof payout>;

let server: TimeSkipping;

beforeAll(async () => {
  server = await startTimeSkipping();
});
afterAll(() => server.stop());

/** Starts the payout as the API does, and runs the test with workers running. */
async function drive(script: ScriptedPayout, test: (handle: Handle) => Promise<void>) {
  await server.withWorkers(script.activities, async () => {
    await startDecided(server, startable(script));
    await test(handleOf(script));
  });
}

function scripted(does: Partial<PayoutActivities> = {}): ScriptedPayout {
  return new ScriptedPayout(newId('payout'), does);
}

function startable({ id }: ScriptedPayout) {
  return {
    id,
    accountId: 'acc_1',
    mode: 'test',
    sourceCurrency: 'USD',
    destinationCurrency: 'EUR',
    settleBy: null,
    fixedSide: 'source',
    ...{ amount: 125_000n, sourceMinor: null, receiveMinor: null },
    batchId: null,
  } as const;
}

function handleOf({ id }: ScriptedPayout): Handle {
  return server.client.workflow.getHandle<typeof payout>(id);
}

/** Puts a report of the rail into the inbox and nudges the payout. */
async function report(script: ScriptedPayout, status: 'settled' | 'returned'): Promise<void> {
  script.inbox.push(status);
  await handleOf(script).signal(railUpdateSignal);
}

/** Waits half as long as a payout waits for its callback: by then it is sent and has not polled. */
const untilSent = () => server.sleep(30_000);

async function eventsOf(handle: Handle) {
  return (await handle.fetchHistory()).events ?? [];
}

/** The regular activities in a history; local activities are recorded as markers. */
async function scheduledIn(handle: Handle): Promise<readonly string[]> {
  const events = await eventsOf(handle);
  return events.flatMap(
    ({ activityTaskScheduledEventAttributes: scheduled }) => scheduled?.activityType?.name ?? [],
  );
}

const metadata = z.object({ currentDetails: z.string().optional() });

/** What an operator sees of the payout in the Temporal UI. */
async function shownTo(handle: Handle) {
  const { status, typedSearchAttributes: attributes } = await handle.describe();
  const { currentDetails } = metadata.parse(await handle.query('__temporal_workflow_metadata'));
  return {
    status: status.name,
    needsAttention: attributes.get(searchAttributes.needsAttention),
    reason: attributes.get(searchAttributes.attentionReason),
    details: currentDetails ?? '',
  };
}

describe('a callback', () => {
  it('settles a sent payout without a poll', async () => {
    const script = scripted();
    await drive(script, async (handle) => {
      await untilSent();
      await report(script, 'settled');
      await expect(handle.result()).resolves.toBe('settled');
    });
    const names = script.calls.map((call) => call.name);
    expect(names).toEqual(['decidePayouts', 'submitPayouts', 'applyRailEvents']);
  });

  it('that arrives twice settles once', async () => {
    const script = scripted();
    await drive(script, async (handle) => {
      await untilSent();
      await report(script, 'settled');
      await handle.signal(railUpdateSignal);
      await expect(handle.result()).resolves.toBe('settled');
    });
    expect(script.callsOf('submitPayouts').length).toBe(1);
    expect(script.callsOf('pollRail')).toEqual([]);
  });

  it('that arrives before the response of the rail settles without a timer', async () => {
    const script = scripted({
      submitPayouts: async () => {
        const settled = script.nextCall('applyRailEvents');
        await report(script, 'settled');
        await settled;
        return [script.row];
      },
    });
    await drive(script, async (handle) => {
      await expect(handle.result()).resolves.toBe('settled');
      const timers = (await eventsOf(handle)).filter((event) => event.timerStartedEventAttributes);
      expect(timers).toEqual([]);
    });
  });

  it('that settles the payout before the response of the rail leaves the local call running', async () => {
    const { promise: applied, resolve: apply } = Promise.withResolvers<void>();
    const script = scripted({
      submitPayouts: async () => {
        await report(script, 'settled');
        await applied;
        await delay(100);
        return [script.row];
      },
      applyRailEvents: async () => {
        apply();
        return script.move('settled');
      },
    });
    await drive(script, async (handle) => {
      await expect(handle.result()).resolves.toBe('settled');
      const events = await eventsOf(handle);
      const markers = events.flatMap((event) => event.markerRecordedEventAttributes ?? []);
      expect(markers.map(({ failure }) => failure?.message)).toEqual(Array(3).fill(undefined));
      expect(events.filter((event) => event.workflowTaskFailedEventAttributes)).toEqual([]);
    });
    expect(script.callsOf('submitPayouts').length).toBe(1);
  });

  it('that changes nothing leaves the payout waiting', async () => {
    const script = scripted();
    await drive(script, async (handle) => {
      await untilSent();
      await handle.signal(railUpdateSignal);
      await untilSent();
      expect((await handle.describe()).status.name).toBe('RUNNING');
      await report(script, 'settled');
      await expect(handle.result()).resolves.toBe('settled');
    });
    expect(script.callsOf('applyRailEvents').length).toBe(2);
    expect(script.callsOf('pollRail')).toEqual([]);
  });

  it('that arrives while an earlier one is being applied is not lost', async () => {
    const script = scripted({
      applyRailEvents: async () => {
        // A local activity delays the signal; a regular one does not.
        if (Context.current().info.isLocal) throw ApplicationFailure.nonRetryable('not here');
        if (script.callsOf('applyRailEvents').length === 2) {
          await report(script, 'settled');
          return [script.row];
        }
        return script.inbox.includes('settled') ? script.move('settled') : [script.row];
      },
    });
    await drive(script, async (handle) => {
      await untilSent();
      await handle.signal(railUpdateSignal);
      await expect(handle.result()).resolves.toBe('settled');
    });
    expect(script.callsOf('pollRail')).toEqual([]);
  });
});

describe('a rail that does not call back', () => {
  it('is polled after a minute, then at pauses that double up to an hour, without growing the history', async () => {
    const timesMs: number[] = [await server.now()];
    const script = scripted({
      pollRail: async () => {
        timesMs.push(await server.now());
        if (timesMs.length < 13) throw retryLater('no news');
        return script.move('settled');
      },
    });
    await drive(script, async (handle) => {
      await expect(handle.result()).resolves.toBe('settled');
      expect((await eventsOf(handle)).length).toBeLessThanOrEqual(27);
      expect(await scheduledIn(handle)).toEqual(['pollRail']);
    });
    const pausesMs = timesMs.slice(1).map((timeMs, index) => timeMs - (timesMs[index] ?? 0));
    expect(pausesMs.map((pauseMs) => Math.round(pauseMs / minuteMs))).toEqual([
      1, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60,
    ]);
  });

  it('is not polled again after a callback between two polls', async () => {
    const script = scripted();
    await drive(script, async (handle) => {
      await server.sleep(hourMs);
      const polls = script.callsOf('pollRail').length;
      await report(script, 'settled');
      await expect(handle.result()).resolves.toBe('settled');
      expect(script.callsOf('pollRail').length).toBe(polls);
      const events = await eventsOf(handle);
      const canceled = events.filter((event) => event.activityTaskCancelRequestedEventAttributes);
      expect(canceled.length).toBe(1);
    });
  });

  it('needs an operator after the deadline, and the payout settles when the rail reports at last', async () => {
    const script = scripted();
    await drive(script, async (handle) => {
      expect(await shownTo(handle)).toMatchObject({
        needsAttention: false,
        details: expect.not.stringContaining('Needs an operator'),
      });
      await server.sleep(5 * dayMs - minuteMs);
      expect(script.callsOf('parkPayout')).toEqual([]);
      await server.sleep(hourMs + 2 * minuteMs);
      expect(script.callsOf('parkPayout').map((call) => call.input)).toMatchObject([
        { driver: script.id, id: script.id, reason: 'settle_by_passed' },
      ]);
      const shown = await shownTo(handle);
      expect(shown).toMatchObject({ status: 'RUNNING', needsAttention: true });
      expect(shown.reason).toBe('settle_by_passed');
      expect(shown.details).toContain('settle_by_passed');

      await server.sleep(30 * dayMs);
      await report(script, 'settled');
      await expect(handle.result()).resolves.toBe('settled');
      const after = await shownTo(handle);
      expect(after).toMatchObject({ needsAttention: false, reason: undefined });
      expect(after.details).toContain('Status: settled.');
    });
  });
});

/** Runs a payout that a regular activity submits, until the bank has settled it. */
async function driveByRegularActivity(script: ScriptedPayout): Promise<void> {
  await drive(script, async (handle) => {
    await untilSent();
    expect(await scheduledIn(handle)).toEqual(['submitPayouts']);
    await report(script, 'settled');
    await handle.result();
  });
}

describe('a submission', () => {
  it('whose outcome is unknown is repeated until the rail answers', async () => {
    const script = scripted({
      submitPayouts: async () => {
        if (script.callsOf('submitPayouts').length < 4) throw retryLater('no answer');
        return script.move('sent');
      },
    });
    await drive(script, async (handle) => {
      await untilSent();
      await report(script, 'settled');
      await expect(handle.result()).resolves.toBe('settled');
    });
    expect(script.callsOf('submitPayouts').length).toBe(4);
  });

  it('whose outcome is unknown is withdrawn when a callback settles the payout', async () => {
    const script = scripted({
      submitPayouts: async () => {
        // First a nudge without news, which must not end the retries.
        if (script.callsOf('submitPayouts').length === 2) {
          await handleOf(script).signal(railUpdateSignal);
        }
        if (script.callsOf('submitPayouts').length === 3) await report(script, 'settled');
        throw retryLater('no answer');
      },
    });
    await drive(script, async (handle) => {
      await expect(handle.result()).resolves.toBe('settled');
      const events = await eventsOf(handle);
      const canceled = events.filter((event) => event.activityTaskCancelRequestedEventAttributes);
      expect(canceled.length).toBe(1);
    });
    expect(script.callsOf('submitPayouts').length).toBe(3);
  });

  it('that fails unexpectedly leaves the payout to a person instead of failing it', async () => {
    const script = scripted({
      submitPayouts: () => Promise.reject(ApplicationFailure.nonRetryable('the sky fell')),
    });
    await drive(script, async (handle) => {
      await server.sleep(dayMs);
      expect(await shownTo(handle)).toMatchObject({
        status: 'RUNNING',
        needsAttention: true,
        reason: 'unexpected_failure',
        details: expect.stringContaining('the sky fell'),
      });
      await report(script, 'settled');
      await expect(handle.result()).resolves.toBe('settled');
    });
    // Once in the workflow task, and once as a regular activity.
    expect(script.callsOf('submitPayouts').length).toBe(2);
  });

  it('that the rail answers at once takes one workflow task together with the decision', async () => {
    const script = scripted();
    await drive(script, async (handle) => {
      const events = await eventsOf(handle);
      const timer = events.findIndex((event) => event.timerStartedEventAttributes);
      const before = events.slice(0, timer);
      expect(before.filter((event) => event.workflowTaskCompletedEventAttributes)).toHaveLength(1);
      expect(script.row.status).toBe('sent');
      expect(await scheduledIn(handle)).toEqual([]);
      await report(script, 'settled');
      await handle.result();
    });
  });

  it('that was begun before is no part of a workflow task, in which commands would wait for it', async () => {
    const script = scripted();
    script.row = { ...script.row, status: 'processing', isSubmitted: true };
    await driveByRegularActivity(script);
    expect(script.callsOf('submitPayouts').length).toBe(1);
  });

  it('without an answer is made again as a regular activity, which shows its failures', async () => {
    const script = scripted({
      submitPayouts: async () => {
        if (script.callsOf('submitPayouts').length < 2) throw retryLater('no answer');
        return script.move('sent');
      },
    });
    await driveByRegularActivity(script);
    expect(script.callsOf('submitPayouts').length).toBe(2);
  });
});

describe('the decision', () => {
  it('to refuse ends the payout as failed, and sends nothing', async () => {
    const script = scripted({ decidePayouts: async () => script.move('failed') });
    await drive(script, async (handle) => {
      await expect(handle.result()).resolves.toBe('failed');
    });
    const names = script.calls.map((call) => call.name);
    expect(names).toEqual(['decidePayouts']);
  });

  it('is not made when another driver has the payout', async () => {
    const script = scripted({ decidePayouts: async () => [] });
    await drive(script, async (handle) => {
      await expect(handle.result()).resolves.toBe('superseded');
    });
    expect(script.calls.map((call) => call.name)).toEqual(['decidePayouts']);
  });

  it('survives a database that fails every local attempt', async () => {
    const script = scripted({
      decidePayouts: async () => {
        if (script.callsOf('decidePayouts').length <= 7)
          throw new Error('the database is unreachable');
        return script.move('processing');
      },
    });
    await drive(script, async (handle) => {
      await untilSent();
      await report(script, 'settled');
      await expect(handle.result()).resolves.toBe('settled');
      expect((await scheduledIn(handle))[0]).toBe('decidePayouts');
    });
    // Five local attempts, then two regular attempts that fail and one that succeeds.
    expect(script.callsOf('decidePayouts').length).toBe(8);
  });
});

it('a cancellation by a customer waits in another queue than the commands of operators', async () => {
  const queues: string[] = [];
  const script = scripted();
  const executeCommand = async () => {
    queues.push(Context.current().info.taskQueue);
    const result = { outcome: 'refused', detail: 'not now', action: null } as const;
    return { steps: [script.row], result };
  };
  const updates = [
    { name: cancelUpdate.name, args: [] },
    { name: operateUpdate.name, args: [newId('operatorAction')] },
  ];
  await server.withWorkers({ ...script.activities, executeCommand }, async () => {
    await startDecided(server, startable(script));
    await untilSent();
    for (const update of updates) {
      const answer = await runUpdate(server.client, startable(script), update, 20_000);
      expect(answer).toMatchObject({ detail: 'not now' });
    }
  });
  expect(queues).toEqual([taskQueues.cancellations, taskQueues.payouts]);
});

describe('a payout whose driver changes meanwhile', () => {
  it('is abandoned by its workflow at the next step', async () => {
    const script = scripted({ applyRailEvents: async () => [] });
    await drive(script, async (handle) => {
      await untilSent();
      await report(script, 'settled');
      await expect(handle.result()).resolves.toBe('superseded');
    });
  });
});

describe('a settled payout', () => {
  it('whose money comes back weeks later is returned by a new run of its workflow', async () => {
    const script = scripted();
    await drive(script, async (handle) => {
      await untilSent();
      await report(script, 'settled');
      await expect(handle.result()).resolves.toBe('settled');
      await server.sleep(21 * dayMs);

      script.inbox.push('returned');
      await wakePayout(server.client, startable(script));
      await expect(handleOf(script).result()).resolves.toBe('returned');
    });
    expect(script.callsOf('submitPayouts').length).toBe(1);
  });

  it('that is started without a signal applies the reports in its inbox', async () => {
    const script = scripted();
    script.move('settled');
    script.inbox.push('returned');
    await drive(script, async (handle) => {
      await expect(handle.result()).resolves.toBe('returned');
    });
  });

  it('that is started by mistake ends without further steps', async () => {
    const script = scripted();
    script.move('settled');
    await drive(script, async (handle) => {
      await expect(handle.result()).resolves.toBe('settled');
    });
    expect(script.calls.map((call) => call.name)).toEqual(['decidePayouts']);
  });
});
