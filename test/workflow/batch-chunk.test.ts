import { Context } from '@temporalio/activity';
import { ApplicationFailure, type WorkflowHandle } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chunkDriver } from '../../src/domain/batch.js';
import type { batchChunk } from '../../src/workflows/batchChunk.js';
import { railUpdateSignal, taskQueues } from '../../src/workflows/messages.js';
import { chunkCounts, ScriptedBatch } from '../fakes/scriptedBatch.js';
import { startTimeSkipping, type TimeSkipping } from '../servers/timeSkipping.js';

const secondMs = 1_000;
const minuteMs = 60 * secondMs;
const hourMs = 60 * minuteMs;
const sixHoursMs = 6 * hourMs;

type Handle = WorkflowHandle<typeof batchChunk>;

let server: TimeSkipping;

beforeAll(async () => {
  server = await startTimeSkipping();
});
afterAll(() => server.stop());

/** Starts the first chunk as its batch does, and runs the test with workers running. */
async function drive(
  { batchId, activities }: Pick<ScriptedBatch, 'batchId' | 'activities'>,
  test: (handle: Handle) => Promise<void>,
  { cachedWorkflows = 0 } = {},
) {
  const chunk = { batchId, number: 0 };
  const work = async () => {
    const handle = await server.client.workflow.start<typeof batchChunk>('batchChunk', {
      workflowId: chunkDriver(chunk),
      taskQueue: taskQueues.batch,
      args: [chunk],
    });
    await test(handle);
  };
  await server.withWorkers(activities, work, { cachedWorkflows });
}

/** For histories so long that replaying them at every task would take minutes. */
const isLong = { cachedWorkflows: 10 };

const nudge = (handle: Handle) => handle.signal(railUpdateSignal);

/** Resolves when the chunk is done. */
const toItsEnd = async (handle: Handle) => {
  await handle.result();
};

/** The maximum pause of a chunk after the n-th successive poll without news. */
const pauseMs = (count: number) => Math.min(10 * secondMs * 2 ** count, 15 * minuteMs);

async function timersOf(handle: Handle): Promise<number> {
  const { events } = await handle.fetchHistory();
  return (events ?? []).filter((event) => event.timerStartedEventAttributes).length;
}

describe('a chunk', () => {
  it('ends when none of its items is open', async () => {
    const script = new ScriptedBatch();
    await drive(script, toItsEnd);
    expect(script.names).toEqual(['submitChunk', 'applyChunkEvents']);
  });

  it('submits its open items to the rail and ends when they are settled', async () => {
    const script = new ScriptedBatch();
    script.current = chunkCounts({ unsent: 500 });
    script.inbox.push(chunkCounts({ sent: 200 }), chunkCounts());
    await drive(script, async (handle) => {
      await handle.result();
      expect(await timersOf(handle)).toBe(0);
    });
    expect(script.names).toEqual(['submitChunk', 'applyChunkEvents', 'applyChunkEvents']);
  });

  it('checks its inbox again when it is signaled while it finishes', async () => {
    const script = new ScriptedBatch({
      applyChunkEvents: async () => {
        if (script.countOf('applyChunkEvents') === 1) {
          script.inbox.push(chunkCounts({ sent: 1 }), chunkCounts());
          await nudge(server.client.workflow.getHandle(`${script.batchId}/0`));
          return chunkCounts();
        }
        return script.inbox.shift() ?? chunkCounts();
      },
    });
    await drive(script, toItsEnd);
    expect(script.inbox).toEqual([]);
    expect(script.countOf('applyChunkEvents')).toBe(3);
  });
});

describe('a chunk whose rail is silent', () => {
  it('polls it after ten seconds, then less and less often, and occupies no worker slot meanwhile', async () => {
    const script = new ScriptedBatch();
    script.current = chunkCounts({ sent: 1 });
    let polls = 0;
    for (let passedMs = pauseMs(0); passedMs <= sixHoursMs; passedMs += pauseMs(polls)) polls += 1;
    const test = async (handle: Handle) => {
      await server.sleep(sixHoursMs);
      expect(script.countOf('pollChunk')).toBe(polls);
      const { raw } = await handle.describe();
      expect(raw.pendingActivities).toEqual([]);
      script.inbox.push(chunkCounts());
      await nudge(handle);
      await handle.result();
    };
    await drive(script, test, isLong);
    const pauses = Array.from({ length: polls + 1 }, (_, count) => ({ forMs: pauseMs(count) }));
    expect(script.inputsOf('suspendChunk')).toMatchObject(pauses);
    expect(pauses.at(-1)).toEqual({ forMs: 15 * minuteMs });
  });

  it('is woken by a report before it polls', async () => {
    const script = new ScriptedBatch();
    script.current = chunkCounts({ sent: 1 });
    await drive(script, async (handle) => {
      await server.sleep(3 * secondMs);
      script.inbox.push(chunkCounts());
      await nudge(handle);
      await handle.result();
    });
    expect(script.countOf('pollChunk')).toBe(0);
  });

  it('resets its pause to ten seconds after a report about some of its items', async () => {
    const script = new ScriptedBatch();
    script.current = chunkCounts({ sent: 2 });
    await drive(
      script,
      async (handle) => {
        await server.sleep(hourMs);
        const paused = script.nextCall('suspendChunk');
        script.inbox.push(chunkCounts({ sent: 1 }));
        await nudge(handle);
        await paused;
        expect(script.inputsOf('suspendChunk').at(-1)).toMatchObject({ forMs: pauseMs(0) });
        script.inbox.push(chunkCounts());
        await nudge(handle);
        await handle.result();
      },
      isLong,
    );
  });

  it('does not pause when a report arrived just before', async () => {
    const script = new ScriptedBatch({
      suspendChunk: async () => {
        script.inbox.push(chunkCounts());
        return false;
      },
    });
    script.current = chunkCounts({ sent: 1 });
    await drive(script, async (handle) => {
      await handle.result();
      expect(await timersOf(handle)).toBe(0);
    });
    expect(script.countOf('suspendChunk')).toBe(1);
  });

  it('continues when the poll fails too', async () => {
    const script = new ScriptedBatch({
      pollChunk: () => Promise.reject(new Error('The rail is unreachable.')),
    });
    script.current = chunkCounts({ sent: 1 });
    await drive(script, async (handle) => {
      await server.sleep(minuteMs);
      expect(script.countOf('pollChunk')).toBeGreaterThan(4);
      script.inbox.push(chunkCounts());
      await nudge(handle);
      await handle.result();
    });
  });
});

describe('a chunk hands over', () => {
  it('items that the rail does not answer for ten minutes, after retrying them', async () => {
    const handedMs: number[] = [];
    const startedMs = await server.now();
    const script = new ScriptedBatch({
      submitChunk: async () => {
        const isOverdue = (await server.now()) - startedMs > 10 * minuteMs;
        return { ...script.counts(), overdue: isOverdue ? 3 : 0 };
      },
      handOverChunk: async () => {
        handedMs.push(await server.now());
        script.current = chunkCounts();
        return script.counts();
      },
    });
    script.current = chunkCounts({ unanswered: 3 });
    await drive(
      script,
      async (handle) => {
        await server.sleep(9 * minuteMs);
        expect(handedMs).toEqual([]);
        expect(script.countOf('submitChunk')).toBeGreaterThan(6);
        await handle.result();
      },
      isLong,
    );
    expect(script.inputsOf('handOverChunk')).toMatchObject([{ scope: 'unanswered' }]);
    expect((handedMs[0] ?? 0) - startedMs).toBeGreaterThan(10 * minuteMs);
    expect((handedMs[0] ?? 0) - startedMs).toBeLessThan(30 * minuteMs);
  });

  it('items that wait for a person, at once', async () => {
    const script = new ScriptedBatch();
    script.current = chunkCounts({ sent: 1, stuck: 2 });
    script.inbox.push(chunkCounts({ sent: 1, stuck: 2 }), chunkCounts());
    await drive(script, async (handle) => {
      await handle.result();
      expect(await timersOf(handle)).toBe(0);
    });
    expect(script.names).toEqual([
      'submitChunk',
      'applyChunkEvents',
      'handOverChunk',
      'applyChunkEvents',
    ]);
    expect(script.inputsOf('handOverChunk')).toMatchObject([{ scope: 'stuck' }]);
  });

  it('all items when a bug keeps it from applying the reports', async () => {
    const script = new ScriptedBatch({
      applyChunkEvents: () => Promise.reject(ApplicationFailure.nonRetryable('a bug', 'Bug')),
    });
    script.current = chunkCounts({ unsent: 2 });
    await drive(script, toItsEnd);
    expect(script.inputsOf('handOverChunk')).toMatchObject([{ scope: 'all' }]);
  });
});

describe('a chunk that cannot be submitted', () => {
  it('settles the items that the rail accepted before, and tries again', async () => {
    let isAway = true;
    const script = new ScriptedBatch({
      submitChunk: async () => {
        if (isAway) throw new Error('The rail is unreachable.');
        script.current = chunkCounts({ sent: 1 });
        return script.counts();
      },
    });
    script.current = chunkCounts({ unsent: 1, sent: 1 });
    script.inbox.push(chunkCounts({ unsent: 1 }));
    await drive(script, async (handle) => {
      await server.sleep(minuteMs);
      expect(script.inbox).toEqual([]);
      expect(script.countOf('handOverChunk')).toBe(0);
      isAway = false;
      script.inbox.push(chunkCounts());
      await handle.result();
    });
  });

  it('hands over items that have had no answer for too long, although its submission fails', async () => {
    const script = new ScriptedBatch({
      submitChunk: () => Promise.reject(ApplicationFailure.nonRetryable('an unreadable answer')),
      handOverChunk: async () => {
        script.current = chunkCounts();
        return script.counts();
      },
    });
    script.current = chunkCounts({ unanswered: 1, overdue: 1 });
    await drive(script, toItsEnd);
    expect(script.countOf('handOverChunk')).toBe(1);
  });

  it('because its batch is paused waits until it is resumed', async () => {
    let isPaused = true;
    const script = new ScriptedBatch({
      submitChunk: async () => {
        if (!isPaused) script.current = chunkCounts({ sent: 2 });
        return script.counts();
      },
    });
    script.current = chunkCounts({ unsent: 2 });
    await drive(
      script,
      async (handle) => {
        await server.sleep(hourMs);
        expect((await handle.describe()).status.name).toBe('RUNNING');
        expect(script.countOf('handOverChunk')).toBe(0);
        isPaused = false;
        const settled = script.nextCall('applyChunkEvents');
        await nudge(handle);
        await settled;
        script.inbox.push(chunkCounts());
        await handle.result();
      },
      isLong,
    );
    expect(script.current).toEqual(chunkCounts());
  });
});

describe('a chunk with a long history', () => {
  it('continues in a new run', async () => {
    let firstRun = '';
    const script = new ScriptedBatch({
      suspendChunk: async () => {
        const runId = Context.current().info.workflowExecution?.runId ?? '';
        firstRun ||= runId;
        if (runId !== firstRun) script.current = chunkCounts();
        return false;
      },
    });
    script.current = chunkCounts({ unsent: 1 });
    const isPaused = { ...script.activities, submitChunk: async () => script.counts() };
    await drive({ batchId: script.batchId, activities: isPaused }, toItsEnd, {
      cachedWorkflows: 10,
    });
    expect(script.current).toEqual(chunkCounts());
  });
});
