import { ApplicationFailure, type WorkflowHandle } from '@temporalio/client';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chunkDriver } from '../../src/domain/batch.js';
import { cancelBatchItems, startBatch, wakeChunks } from '../../src/temporal/workflowCalls.js';
import type { batch } from '../../src/workflows/batch.js';
import type { batchChunk } from '../../src/workflows/batchChunk.js';
import { cancelBatchUpdate, railUpdateSignal } from '../../src/workflows/messages.js';
import { chunkCounts, ScriptedBatch } from '../fakes/scriptedBatch.js';
import { startTimeSkipping, type TimeSkipping } from '../servers/timeSkipping.js';

/** Time limit for a cancellation: longer than one takes in these tests. */
const cancelLimitMs = 20_000;

let server: TimeSkipping;

beforeAll(async () => {
  server = await startTimeSkipping();
});
afterAll(() => server.stop());

type Handle = WorkflowHandle<typeof batch>;

/** Starts the batch as the API does, and runs the test with workers running. */
async function drive(script: ScriptedBatch, test: (handle: Handle) => Promise<unknown>) {
  await server.withWorkers(script.activities, async () => {
    await startBatch(server.client, script.batchId);
    await test(handleOf(script));
  });
}

const handleOf = ({ batchId }: ScriptedBatch): Handle =>
  server.client.workflow.getHandle<typeof batch>(batchId);

const chunkOf = ({ batchId }: ScriptedBatch, number: number) =>
  server.client.workflow.getHandle<typeof batchChunk>(chunkDriver({ batchId, number }));

const cancel = ({ batchId }: ScriptedBatch) =>
  cancelBatchItems(server.client, batchId, cancelLimitMs);

/** Every chunk, as passed to an activity. */
const everyChunk = [{ number: 0 }, { number: 1 }, { number: 2 }];

/** The IDs of the chunk workflows that a run has started. */
async function startedBy(handle: Handle): Promise<readonly string[]> {
  const { events } = await handle.fetchHistory();
  return (events ?? []).flatMap(
    ({ startChildWorkflowExecutionInitiatedEventAttributes: child }) => child?.workflowId ?? [],
  );
}

/** The length of each timer that a run has started, in seconds, and the number of timers that fired. */
async function timersOf(handle: Handle) {
  const { events } = await handle.fetchHistory();
  const started = (events ?? []).flatMap(({ timerStartedEventAttributes: timer }) =>
    timer?.startToFireTimeout ? [Number(timer.startToFireTimeout.seconds)] : [],
  );
  const fired = (events ?? []).filter(({ timerFiredEventAttributes: timer }) => timer).length;
  return { started, fired };
}

/** A promise and the function that resolves it. */
function createGate() {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { open, opened };
}

describe('a batch', () => {
  it('is decided chunk by chunk, and starts the chunks with open items', async () => {
    const script = new ScriptedBatch({
      acceptChunk: async ({ number }) => {
        if (number === 0) return script.counts({ unsent: 2 });
        return script.counts({ sent: number === 2 ? 1 : 0 });
      },
    });
    await drive(script, async (handle) => {
      await handle.result();
      expect(await startedBy(handle)).toEqual([`${script.batchId}/0`, `${script.batchId}/2`]);
      await Promise.all([chunkOf(script, 0).result(), chunkOf(script, 2).result()]);
    });
    expect(script.inputsOf('acceptChunk')).toMatchObject(everyChunk);
    expect(script.countOf('decideBatch')).toBe(0);
  });

  it('checks its progress at once when a chunk has ended', async () => {
    const script = new ScriptedBatch({ acceptChunk: async () => chunkCounts({ sent: 1 }) });
    script.current = chunkCounts({ sent: 1 });
    await drive(script, async (handle) => {
      await script.nextCall('suspendChunk');
      script.current = chunkCounts();
      for (const { number } of everyChunk) await chunkOf(script, number).signal(railUpdateSignal);
      // Awaiting the result would skip time, perhaps past the timer before a chunk has read the signal.
      const statusOf = async () => (await handle.describe()).status.name;
      await expect.poll(statusOf, { timeout: 20_000 }).toBe('COMPLETED');
      expect(await handle.result()).toBe('all of it is over');
      const { started, fired } = await timersOf(handle);
      expect(fired).toBeLessThan(started.length);
    });
  });

  it('decides items that a stopped worker has left undecided', async () => {
    const script = new ScriptedBatch({
      readBatch: async () => ({
        ...script.plan('best_effort'),
        isOver: script.countOf('acceptChunk') > 3,
        isUndecided: script.countOf('acceptChunk') === 3,
      }),
    });
    await drive(script, (handle) => handle.result());
    expect(script.inputsOf('acceptChunk')).toMatchObject([...everyChunk, ...everyChunk]);
  });

  it('leaves a chunk to its workflow that is already running', async () => {
    const script = new ScriptedBatch({
      acceptChunk: async ({ number }) => script.counts(number === 1 ? {} : chunkCounts()),
    });
    script.current = chunkCounts({ sent: 1 });
    await server.withWorkers(script.activities, async () => {
      await wakeChunks(server.client, [{ batchId: script.batchId, number: 1 }]);
      const { runId } = await chunkOf(script, 1).describe();
      const isBegun = script.nextCall('closeEmptyBatch');
      await startBatch(server.client, script.batchId);
      await isBegun;
      expect((await chunkOf(script, 1).describe()).runId).toBe(runId);
      script.current = chunkCounts();
      // The chunk is not a child of this batch, which therefore does not learn that it has ended.
      await handleOf(script).signal(railUpdateSignal);
      await chunkOf(script, 1).signal(railUpdateSignal);
      await Promise.all([handleOf(script).result(), chunkOf(script, 1).result()]);
    });
    expect(script.inputsOf('acceptChunk')).toMatchObject(everyChunk);
  });

  it('in all_or_nothing mode is decided as a whole before its chunks', async () => {
    const script = new ScriptedBatch({
      readBatch: async () => script.plan('all_or_nothing'),
    });
    await drive(script, (handle) => handle.result());
    expect(script.names).toEqual([
      'readBatch',
      'decideBatch',
      ...everyChunk.map(() => 'acceptChunk'),
      'closeEmptyBatch',
      'readBatch',
    ]);
  });

  it('hands over a chunk that cannot be decided because of a bug, and continues', async () => {
    const script = new ScriptedBatch({
      acceptChunk: async ({ number }) => {
        if (number === 1) throw ApplicationFailure.nonRetryable('a bug', 'Bug');
        return script.counts();
      },
    });
    await drive(script, (handle) => handle.result());
    expect(script.inputsOf('handOverChunk')).toMatchObject([{ number: 1, scope: 'all' }]);
    expect(script.inputsOf('acceptChunk')).toMatchObject(everyChunk);
  });

  it('processes every chunk again after it was terminated', async () => {
    const gate = createGate();
    let runs = 0;
    const script = new ScriptedBatch({
      acceptChunk: async ({ number }) => {
        if (number === 1 && runs === 0) await gate.opened;
        return script.counts();
      },
    });
    await drive(script, async (handle) => {
      while (script.countOf('acceptChunk') < 2) await script.nextCall('acceptChunk');
      await handle.terminate();
      runs += 1;
      gate.open();
      await startBatch(server.client, script.batchId);
      await handleOf(script).result();
    });
    expect(script.inputsOf('acceptChunk')).toMatchObject([
      ...everyChunk.slice(0, 2),
      ...everyChunk,
    ]);
  });
});

describe('the cancellation of a batch', () => {
  it('before any decision returns after every chunk was canceled', async () => {
    const script = new ScriptedBatch();
    await server.withWorkers(script.activities, async () => {
      await cancel(script);
      expect(script.inputsOf('cancelChunk')).toMatchObject(everyChunk);
      await handleOf(script).result();
    });
    expect(script.names.indexOf('cancelChunk')).toBeGreaterThan(
      script.names.lastIndexOf('acceptChunk'),
    );
    expect(script.countOf('cancelChunk')).toBe(3);
  });

  it('during the decision returns after every chunk was canceled', async () => {
    let answered: Promise<unknown> | undefined;
    const script = new ScriptedBatch({
      acceptChunk: async ({ number }) => {
        if (number === 1) {
          const update = await handleOf(script).startUpdate(cancelBatchUpdate, {
            waitForStage: 'ACCEPTED',
          });
          answered = update.result().then(() => script.inputsOf('cancelChunk'));
        }
        return script.counts();
      },
    });
    await drive(script, (handle) => handle.result());
    await expect(answered).resolves.toMatchObject(everyChunk);
    expect(script.inputsOf('acceptChunk')).toMatchObject(everyChunk);
  });

  it('during an earlier cancellation cancels every chunk once more', async () => {
    const gate = createGate();
    const script = new ScriptedBatch({
      cancelChunk: async () => {
        if (script.countOf('cancelChunk') === 1) await gate.opened;
      },
    });
    const begun = script.nextCall('cancelChunk');
    await drive(script, async (handle) => {
      const first = cancel(script);
      await begun;
      const second = handle.executeUpdate(cancelBatchUpdate);
      gate.open();
      await Promise.all([first, second]);
      await handle.result();
    });
    expect(script.inputsOf('cancelChunk')).toMatchObject([...everyChunk, ...everyChunk]);
  });

  it('by 20 callers at once is one update and one pass, and so is a later one', async () => {
    const gate = createGate();
    let isOver = false;
    const script = new ScriptedBatch({
      readBatch: async () => ({ ...script.plan('best_effort'), isOver }),
      cancelChunk: async () => {
        await gate.opened;
      },
    });
    await drive(script, async (handle) => {
      const callers = Array.from({ length: 20 }, () => cancel(script));
      await script.nextCall('cancelChunk');
      gate.open();
      await Promise.all(callers);
      await cancel(script);
      isOver = true;
      await handle.signal(railUpdateSignal);
      await handle.result();
      const { events } = await handle.fetchHistory();
      const updates = (events ?? []).filter(
        ({ workflowExecutionUpdateAcceptedEventAttributes: update }) => update,
      );
      expect(updates).toHaveLength(1);
    });
    expect(script.inputsOf('cancelChunk')).toMatchObject(everyChunk);
  });

  it('after the end of its workflow starts the workflow again', async () => {
    const script = new ScriptedBatch();
    await drive(script, async (handle) => {
      await handle.result();
      await cancel(script);
      expect(script.inputsOf('cancelChunk')).toMatchObject(everyChunk);
      await handleOf(script).result();
    });
  });

  it('cancels the other chunks when a bug prevents one, and reports the failure', async () => {
    const script = new ScriptedBatch({
      cancelChunk: async ({ number }) => {
        if (number === 0) throw ApplicationFailure.nonRetryable('a bug', 'Bug');
      },
    });
    await server.withWorkers(script.activities, async () => {
      await expect(cancel(script)).rejects.toThrow();
      await expect(handleOf(script).result()).rejects.toThrow();
      expect(script.inputsOf('cancelChunk')).toMatchObject(everyChunk);
      await expect(cancel(script)).rejects.toThrow();
    });
    expect(script.inputsOf('cancelChunk')).toMatchObject([...everyChunk, ...everyChunk]);
  });
});

describe('a batch that waits', () => {
  // After a workflow has left child workflows behind, its server no longer skips time (sdk-java#2392).
  beforeAll(async () => {
    await server.stop();
    server = await startTimeSkipping();
  });

  it('stays open until it is over, checks less and less often, and shows the outcome', async () => {
    const script = new ScriptedBatch({
      readBatch: async () => ({
        ...script.plan('best_effort'),
        isOver: script.countOf('readBatch') > 7,
      }),
    });
    await drive(script, async (handle) => {
      expect(await handle.result()).toBe('all of it is over');
      expect((await timersOf(handle)).started).toEqual([5, 10, 20, 40, 80, 160]);
      expect(await handle.query('__temporal_workflow_metadata')).toMatchObject({
        currentDetails: expect.stringContaining(`corridor batches show ${script.batchId}`),
      });
    });
  });
});
