import { isDeepStrictEqual } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readQueueBacklog } from '../../src/temporal/queueBacklog.js';
import { taskQueues } from '../../src/workflows/messages.js';
import { eventually } from '../assertions/eventually.js';
import { openBatchPayer, untilBatch } from '../fixtures/batchPayer.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem({ startsWorker: false });
});
afterAll(() => system.stop());

describe('the batch lane, which has the lowest priority', () => {
  it('runs no workflow tasks: those of batches run in the single lane', async () => {
    await system.startWorker('single');
    const payer = await openBatchPayer(system, 2_000n);
    const id = await payer.send([payer.item('plain')]);
    const handle = system.temporal.workflow.getHandle(id);
    const backlog = async () => {
      const samples = await readQueueBacklog(system.temporal);
      const queue = { task_queue: taskQueues.batch, kind: 'activity' };
      const own = samples.filter(({ labels }) => isDeepStrictEqual(labels, queue));
      return own.find(({ metric }) => metric === 'task_queue_backlog')?.value;
    };
    // Its first workflow task is done, and the activity that it scheduled waits for the lane.
    await eventually(`${id} has begun`, 20_000, async () => {
      const { pendingActivities } = (await handle.describe()).raw;
      return pendingActivities?.some(({ activityType }) => activityType?.name === 'readBatch')
        ? true
        : undefined;
    });
    // As an operator sees it; batches of files that ran earlier on this Temporal may be waiting too.
    await eventually('a backlog', 20_000, async () => Number(await backlog()) >= 1 || undefined);
    expect((await payer.events())['payout.settled']).toBe(undefined);
    await system.startWorker('batch');
    expect((await untilBatch(payer.client, id)).status).toBe('completed');
    await handle.result();
    await eventually('no backlog', 20_000, async () => (await backlog()) === 0 || undefined);
  });
});
