import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { insertBatch, type NewItem } from '../../src/db/batches.js';
import { bulkTransaction } from '../../src/db/client.js';
import { newId } from '../../src/db/id.js';
import { taskQueues } from '../../src/workflows/messages.js';
import { eventually } from '../assertions/eventually.js';
import { requestPayout } from '../fixtures/requestPayout.js';
import { startSystem, type TestSystem } from '../servers/system.js';

let system: TestSystem;

beforeAll(async () => {
  system = await startSystem();
});
afterAll(() => system?.stop());

/** A batch as the API commits it before it dies: nobody has been told of it. */
async function leaveBatch(item: NewItem): Promise<string> {
  const id = newId('batch');
  const accountId = system.account.account.id;
  await bulkTransaction(system.database, 1, (sql) =>
    insertBatch(sql, { id, accountId, mode: 'best_effort', rates: [], items: [item] }),
  );
  return id;
}

/** Sweeps as the schedule does, at a time when what was left behind is due. */
async function sweep(batchId: string): Promise<void> {
  await system.database`update batch_chunks set wake_at = now() where batch_id = ${batchId}`;
  await system.temporal.workflow.execute('sweep', {
    taskQueue: taskQueues.payouts,
    workflowId: `sweep-${randomUUID()}`,
  });
}

function untilCompleted(batchId: string): Promise<true> {
  return eventually(`${batchId} is completed`, 20_000, async () => {
    const { body } = await system.client(`GET /v1/batches/${batchId}`);
    return body['status'] === 'completed' ? true : undefined;
  });
}

describe('a batch that nobody has started is started by the sweep', () => {
  it('is due as soon as a payout that nobody has started', async () => {
    const payout = await requestPayout(system.database, system.account.account.id);
    const id = await leaveBatch({ index: 0, refersTo: payout.id });
    const rows = await system.database<{ isAsSoon: boolean }[]>`
      select c.wake_at <= b.created_at + interval '15 seconds' as is_as_soon
        from batch_chunks c join batches b on b.id = c.batch_id where b.id = ${id}`;
    expect(rows).toEqual([{ isAsSoon: true }]);
  });

  it('also when it only refers to payouts made before, and then says once that it is over', async () => {
    const { client, database, account } = system;
    const payout = await requestPayout(database, account.account.id);
    const id = await leaveBatch({ index: 0, refersTo: payout.id });
    await sweep(id);
    await untilCompleted(id);
    // A second sweep finds it complete, and leaves nothing due.
    await sweep(id);
    await eventually('no chunk is due', 20_000, async () => {
      const due = await database`
        select from batch_chunks where batch_id = ${id} and wake_at is not null`;
      return due.length === 0 ? true : undefined;
    });
    const events = await client(`GET /v1/events?type=batch.completed&batch=${id}`);
    expect(events.body['data']).toHaveLength(1);
  });
});
